-- nothing of nothing is nothing
SELECT user_id, COUNT(*) AS n FROM orders WHERE amount > NULL GROUP BY user_id
