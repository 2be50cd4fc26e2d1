-- The smallest table connects to the biggest through two others; the columns of a derived table come between them.
SELECT u.amount, u.name, r.name AS region FROM (
  SELECT s.amount, c.name, c.nation AS n, s.part FROM sales s JOIN customers c ON s.customer = c.id
) AS u JOIN nations n ON u.n = n.id JOIN regions r ON n.region = r.id WHERE r.name = 'EUROPE'
