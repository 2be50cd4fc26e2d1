CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`ws` TIMESTAMP(3), `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT TUMBLE_START(mt, INTERVAL '2' MINUTE) AS ws, COUNT(*) AS n FROM (SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES MATCH_ROWTIME() AS mt AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.amount < 15, B AS B.amount > 30)) GROUP BY TUMBLE(mt, INTERVAL '2' MINUTE);
