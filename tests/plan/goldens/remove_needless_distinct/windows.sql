-- each user has one row a window
SELECT DISTINCT user_id, window_end, n FROM (SELECT user_id, window_start, window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY user_id, window_start, window_end)
