CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`ws` TIMESTAMP(3), `user_id` STRING, `a` BIGINT, `b` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT a.window_start AS ws, a.user_id, a.n AS a, b.n AS b FROM (SELECT window_start, window_end, user_id, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '2' MINUTE)) GROUP BY window_start, window_end, user_id) a LEFT JOIN (SELECT window_start, window_end, user_id, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '2' MINUTE)) GROUP BY window_start, window_end, user_id) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.user_id = b.user_id AND b.n > 2;
