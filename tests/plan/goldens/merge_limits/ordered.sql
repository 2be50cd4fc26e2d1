-- stays: the order needs all rows anyhow, and what is computed of them is small
SELECT UPPER(url) AS u, id AS i FROM clicks ORDER BY id LIMIT 5
