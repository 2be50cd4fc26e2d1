-- the watermark of `orders` makes no difference to this query
SELECT id, amount FROM orders WHERE amount > 5 AND currency IN ('USD', 'EUR') AND ts < TIMESTAMP '2024-01-01 00:00:00'
