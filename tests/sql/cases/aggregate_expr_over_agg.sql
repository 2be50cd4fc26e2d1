CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `x` DECIMAL(38,6), `y` CHAR(5), `z` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT user_id, CAST(SUM(amount) / COUNT(*) AS DECIMAL(38,6)) AS x, CASE WHEN SUM(quantity) > 100 THEN 'large' ELSE 'small' END AS y, MAX(order_id) - MIN(order_id) + 1 AS z FROM orders GROUP BY user_id;
