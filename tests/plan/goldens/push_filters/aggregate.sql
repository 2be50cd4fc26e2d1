SELECT * FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) WHERE user_id LIKE 'a%' AND n > 1
