-- rows 5 to 14 of which rows 3 to 6: rows 7 to 10
SELECT * FROM (SELECT id, amount FROM orders ORDER BY amount LIMIT 10 OFFSET 4) ORDER BY amount LIMIT 4 OFFSET 2
