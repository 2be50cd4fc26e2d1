CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `a` BIGINT, `b` BIGINT, `c` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES A.order_id AS a, B.order_id AS b, C.order_id AS c AFTER MATCH SKIP PAST LAST ROW PATTERN (A B? C) DEFINE A AS A.quantity = 1, B AS B.quantity > 2, C AS C.quantity = 2);
