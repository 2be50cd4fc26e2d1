-- computed for five rows only
SELECT UPPER(url) AS u, id + 1 AS next FROM clicks LIMIT 5
