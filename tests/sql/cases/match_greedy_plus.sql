CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `f` BIGINT, `l` BIGINT, `n` BIGINT, `s` DECIMAL(38,2), `e` TIMESTAMP(3))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, f, l, n, s, e FROM orders MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES FIRST(A.order_id) AS f, LAST(A.order_id) AS l, COUNT(A.order_id) AS n, SUM(A.amount) AS s, B.ts AS e ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS A.amount < 20, B AS B.amount >= 20) AS T;
