CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `a` STRING, `c` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, a, c FROM (SELECT * FROM orders WHERE status = 'paid') MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES LAST(A.product) AS a, FIRST(B.product, 1) AS c AFTER MATCH SKIP TO FIRST B PATTERN (A B{2,3}? C) DEFINE A AS CHAR_LENGTH(A.product) > 4, C AS C.product <> LAST(B.product));
