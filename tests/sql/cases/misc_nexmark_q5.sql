CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `user_id` STRING, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT a.window_start, a.window_end, a.user_id, a.n FROM (SELECT user_id, window_start, window_end, COUNT(*) AS n FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)) GROUP BY user_id, window_start, window_end) a JOIN (SELECT MAX(n) AS mx, window_start, window_end FROM (SELECT user_id, window_start, window_end, COUNT(*) AS n FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)) GROUP BY user_id, window_start, window_end) GROUP BY window_start, window_end) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.n >= b.mx;
