-- stays: an order without a click comes out, too
SELECT o.id, c.url FROM orders o LEFT JOIN (SELECT * FROM clicks WHERE user_id = 'ann') c ON o.user_id = c.user_id
