-- the ranks come with the rows, behind the columns of the table below
SELECT i, amt, rn FROM (
  SELECT *, ROW_NUMBER() OVER (ORDER BY amt) AS rn
  FROM (SELECT amount AS amt, id AS i FROM (SELECT id, amount FROM orders ORDER BY amount LIMIT 10))
) WHERE rn <= 3
