CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `a` BIGINT, `c` BIGINT, `secs` INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, a, c, secs FROM orders MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES A.order_id AS a, C.order_id AS c, TIMESTAMPDIFF(SECOND, A.ts, C.ts) AS secs AFTER MATCH SKIP PAST LAST ROW PATTERN (A B*? C) WITHIN INTERVAL '30' SECOND DEFINE A AS A.status = 'paid', C AS C.status = 'refunded');
