-- stays: below it would remember three columns, not one
SELECT CONCAT(url, user_id, CAST(id AS STRING)) AS all_of_it FROM clicks LIMIT 5
