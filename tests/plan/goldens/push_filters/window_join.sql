-- each side's conditions to it, those on keys to both
SELECT l.id, r.url FROM
(SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) l JOIN
(SELECT * FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) r
ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.user_id = r.user_id
WHERE l.amount > 5 AND l.user_id = 'ann'
