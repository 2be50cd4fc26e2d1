CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `window_time` TIMESTAMP(3))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, window_start, window_end, window_time FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)) WHERE amount > 40;
