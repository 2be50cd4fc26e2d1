-- an order without a click comes out in any case, a click only with an order
SELECT o.id, c.url FROM orders o LEFT JOIN clicks c ON o.id = c.id AND
  ((o.amount > 5 AND c.url = 'a') OR (o.amount < 2 AND c.url = 'b'))
