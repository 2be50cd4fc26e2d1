CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`s` TIMESTAMP(3), `e` TIMESTAMP(3), `n` BIGINT, `t` DECIMAL(38,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT HOP_START(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE) AS s, HOP_END(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE) AS e, COUNT(DISTINCT user_id) AS n, SUM(amount) AS t FROM orders GROUP BY HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE);
