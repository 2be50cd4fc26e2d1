CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`currency` STRING, `user_id` STRING, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT currency, user_id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY n DESC, user_id) AS rn FROM (SELECT currency, user_id, COUNT(*) AS n FROM orders GROUP BY currency, user_id)) WHERE rn <= 3;
