-- the counts are computed once, though their columns are called differently
WITH counts AS (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id)
SELECT a.user_id, a.n, b.most FROM counts a
JOIN (SELECT MAX(n) AS most FROM (SELECT user_id AS u, COUNT(*) AS n FROM orders GROUP BY user_id)) b ON a.n = b.most
