-- one column for one
SELECT CHAR_LENGTH(url) AS n FROM clicks LIMIT 5
