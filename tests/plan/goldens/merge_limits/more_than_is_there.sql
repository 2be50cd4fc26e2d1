-- rows 5 to 14 of which rows 3 to 102: rows 7 to 14
SELECT * FROM (SELECT id, amount FROM orders ORDER BY amount LIMIT 10 OFFSET 4) ORDER BY amount LIMIT 100 OFFSET 2
