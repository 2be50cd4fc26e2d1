CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `n` BIGINT, `s` DECIMAL(38,2), `a` DECIMAL(38,6), `mx` DECIMAL(10,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, n, s, a, mx FROM orders MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES COUNT(A.order_id) AS n, SUM(A.amount) AS s, AVG(A.amount) AS a, MAX(A.amount) AS mx AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS SUM(A.amount) < 100);
