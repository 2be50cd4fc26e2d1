CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `s` TIMESTAMP(3), `e` TIMESTAMP(3), `r` TIMESTAMP(3), `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, TUMBLE_START(ts, INTERVAL '1' MINUTE) AS s, TUMBLE_END(ts, INTERVAL '1' MINUTE) AS e, TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE) AS r, COUNT(*) AS n FROM orders GROUP BY user_id, TUMBLE(ts, INTERVAL '1' MINUTE);
