CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (u STRING, a DECIMAL(38,2), r BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink SELECT t.u, t.a, t.r FROM (SELECT u, a, ROW_NUMBER() OVER (ORDER BY a DESC, u) AS r FROM (SELECT user_id AS u, SUM(amount) AS a FROM orders GROUP BY user_id)) AS t WHERE t.r <= 3 AND t.a > 10;
