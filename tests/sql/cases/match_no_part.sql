CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`f` BIGINT, `l` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT * FROM orders MATCH_RECOGNIZE (ORDER BY ts, order_id MEASURES A.order_id AS f, C.order_id AS l AFTER MATCH SKIP PAST LAST ROW PATTERN (A B{2} C) DEFINE A AS A.currency = 'EUR', B AS B.currency <> 'EUR', C AS C.currency = 'EUR');
