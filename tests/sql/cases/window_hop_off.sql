CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `n` BIGINT, `mx` INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, window_start, window_end, COUNT(*) AS n, MAX(quantity) AS mx FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '15' SECOND, INTERVAL '45' SECOND, INTERVAL '5' SECOND)) WHERE user_id IS NOT NULL GROUP BY user_id, window_start, window_end;
