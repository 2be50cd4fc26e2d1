CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `f` BIGINT, `l` BIGINT, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES S.order_id AS f, LAST(U.order_id) AS l, COUNT(U.amount) AS n ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (S U{2,} X) DEFINE U AS U.amount > PREV(U.amount), X AS X.amount <= PREV(X.amount));
