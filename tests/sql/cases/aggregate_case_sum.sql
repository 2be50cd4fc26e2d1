CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `p` INT, `r` DECIMAL(38,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT user_id, SUM(CASE WHEN status = 'paid' THEN 1 ELSE 0 END) AS p, SUM(CASE WHEN status = 'refunded' THEN amount END) AS r FROM orders GROUP BY user_id;
