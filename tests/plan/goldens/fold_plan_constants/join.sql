-- a join's own condition, too
SELECT o.id, c.url FROM orders o LEFT JOIN clicks c ON o.id = c.id AND 2 > 1 AND o.amount + c.order_id > 2 + 3
