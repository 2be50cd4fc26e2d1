SET 'table.local-time-zone' = 'UTC'; -- a comment; with semicolon
SET 'parallelism.default' = '2';
CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE VIEW v1 AS SELECT * FROM orders WHERE amount > 10 /* block ; comment */;
CREATE TEMPORARY VIEW IF NOT EXISTS v2 (u, a, `order`) AS SELECT user_id, amount, order_id FROM v1;
DROP TEMPORARY VIEW IF EXISTS nope;
CREATE TABLE result_sink (user_id STRING, n BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO `result_sink`
WITH a AS (SELECT u, `order` AS o FROM v2), b AS (SELECT u, COUNT(o) AS n FROM a GROUP BY u)
SELECT u, n FROM b WHERE n > 3;
