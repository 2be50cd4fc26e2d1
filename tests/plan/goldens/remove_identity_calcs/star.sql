-- once the scan reads no other column, selecting them does nothing
SELECT user_id, COUNT(*) AS n FROM (SELECT user_id, currency FROM orders) GROUP BY user_id
