CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `currency` STRING, `window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `n` BIGINT, `dq` BIGINT, `t` DECIMAL(38,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, currency, window_start, window_end, COUNT(*) AS n, COUNT(DISTINCT quantity) AS dq, SUM(amount) FILTER (WHERE status = 'paid') AS t FROM TABLE(SESSION(TABLE orders PARTITION BY (user_id, currency), DESCRIPTOR(ts), INTERVAL '25' SECOND)) GROUP BY user_id, currency, window_start, window_end;
