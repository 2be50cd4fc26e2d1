CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE VIEW paid AS SELECT user_id, order_id, amount, ts FROM orders WHERE status = 'paid';
CREATE TABLE result_sink (`user_id` STRING, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT user_id, COUNT(*) AS n FROM (SELECT * FROM paid MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES A.order_id AS x AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.amount > A.amount)) GROUP BY user_id;
