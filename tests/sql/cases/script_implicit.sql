CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (a DOUBLE, b VARCHAR(100), c BIGINT, d DECIMAL(12,4), e TIMESTAMP(6))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink SELECT quantity, CAST(order_id AS VARCHAR(20)), quantity, amount, ts FROM orders;
