CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `a` DECIMAL(38,6), `b` DECIMAL(13,2), `c` DECIMAL(12,4), `d` DECIMAL(10,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, SUM(amount * 1.5) OVER (PARTITION BY user_id ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) * 0.00001 AS a, amount - quantity AS b, CAST(amount * 1.005 AS DECIMAL(12,4)) AS c, MOD(amount, 7) AS d FROM orders;
