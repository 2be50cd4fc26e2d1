CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `b` BOOLEAN)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, CURRENT_TIMESTAMP > TO_TIMESTAMP_LTZ(0, 3) AND CURRENT_DATE > DATE '2020-01-01' AND NOW() IS NOT NULL AND LOCALTIMESTAMP > ts AS b FROM orders;
