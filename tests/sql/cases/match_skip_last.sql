CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`currency` STRING, `f` BIGINT, `l` BIGINT, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY currency ORDER BY ts MEASURES FIRST(A.order_id) AS f, LAST(B.order_id) AS l, COUNT(*) AS n AFTER MATCH SKIP TO LAST B PATTERN (A B{1,3} C) DEFINE A AS A.amount < 30, B AS B.amount > 15, C AS C.amount <= 15);
