CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`v` DECIMAL(12,2), `k` VARCHAR(5))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT amount AS v, 'a' AS k FROM orders WHERE quantity = 10 UNION ALL SELECT quantity, 'bbbbb' FROM orders WHERE quantity > 4;
