CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`n` BIGINT, `mx` DECIMAL(38,2), `mn` DECIMAL(38,2), `a` DECIMAL(38,6), `l` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT n, MAX(t) AS mx, MIN(t) AS mn, AVG(t) AS a, COUNT(DISTINCT u) AS l FROM (SELECT user_id AS u, COUNT(*) AS n, SUM(amount) AS t FROM orders GROUP BY user_id) GROUP BY n;
