-- stays: the first three by number of the ten smallest amounts
SELECT * FROM (SELECT id, amount FROM orders ORDER BY amount LIMIT 10) ORDER BY id LIMIT 3
