CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`k` BIGINT, `c` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT k, COUNT(*) AS c FROM (SELECT n / 10 AS k, u FROM (SELECT user_id AS u, COUNT(*) AS n FROM orders GROUP BY user_id)) GROUP BY k;
