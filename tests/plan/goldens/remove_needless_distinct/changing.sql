-- stays: DISTINCT holds back the changes of n
SELECT DISTINCT user_id FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id)
