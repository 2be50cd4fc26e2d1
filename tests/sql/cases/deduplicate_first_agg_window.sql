CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`ws` TIMESTAMP(3), `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS ws, COUNT(*) AS n FROM (SELECT ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id, product ORDER BY ts) AS rn FROM orders) WHERE rn = 1) GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE);
