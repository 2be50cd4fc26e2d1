-- aggregates that nobody reads are not computed
SELECT window_end, n FROM (SELECT user_id, window_start, window_end, COUNT(*) AS n, MAX(amount) AS most
FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)) GROUP BY user_id, window_start, window_end)
