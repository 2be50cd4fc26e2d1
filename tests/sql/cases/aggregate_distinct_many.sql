CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`status` STRING, `a` BIGINT, `b` BIGINT, `c` INT, `d` BIGINT, `e` INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT status, COUNT(DISTINCT user_id) AS a, COUNT(DISTINCT user_id) FILTER (WHERE amount > 50) AS b, SUM(DISTINCT quantity) AS c, COUNT(DISTINCT CASE WHEN quantity > 1 THEN product END) AS d, AVG(DISTINCT quantity) AS e FROM orders GROUP BY status;
