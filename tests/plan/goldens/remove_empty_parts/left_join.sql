-- the side that is never there is NULL
SELECT o.id, c.url FROM orders o LEFT JOIN (SELECT * FROM clicks WHERE FALSE) c ON o.id = c.id
