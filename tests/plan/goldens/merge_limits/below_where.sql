-- stays: five rows that pass, not those of five rows that do
SELECT UPPER(url) AS u, id + 1 AS next FROM clicks WHERE id > 10 LIMIT 5
