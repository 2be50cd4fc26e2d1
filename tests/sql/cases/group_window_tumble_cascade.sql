CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`s` TIMESTAMP(3), `n` BIGINT, `m` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT TUMBLE_START(rt, INTERVAL '2' MINUTE) AS s, COUNT(*) AS n, MAX(c) AS m FROM (SELECT user_id, TUMBLE_ROWTIME(ts, INTERVAL '20' SECOND) AS rt, COUNT(*) AS c FROM orders GROUP BY user_id, TUMBLE(ts, INTERVAL '20' SECOND)) GROUP BY TUMBLE(rt, INTERVAL '2' MINUTE);
