-- each branch says something of either side: what both say of one side is asked of its rows first
SELECT o.id, c.url FROM orders o JOIN clicks c ON
  (o.id = c.id AND o.currency = 'EUR' AND c.url = 'a' AND o.amount BETWEEN 1 AND 5)
  OR (c.id = o.id AND o.currency = 'USD' AND c.url IN ('b', 'c'))
