CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `t` DECIMAL(38,2), `rn` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT user_id, t, rn FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY t DESC, user_id) AS rn FROM (SELECT user_id, SUM(amount) AS t FROM orders GROUP BY user_id)) WHERE rn <= 5;
