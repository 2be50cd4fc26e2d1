CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`b` INT, `user_id` STRING, `s` DECIMAL(38,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT b, user_id, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY b ORDER BY s DESC, user_id) AS rn FROM (SELECT quantity / 3 AS b, user_id, SUM(amount) AS s FROM orders WHERE quantity IS NOT NULL GROUP BY quantity / 3, user_id)) WHERE rn <= 2;
