CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `p` BIGINT, `p2` DECIMAL(10,2), `d` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, LAG(order_id) OVER (PARTITION BY user_id ORDER BY ts) AS p, LAG(amount, 2) OVER (PARTITION BY user_id ORDER BY ts) AS p2, LAG(order_id, 1, -1) OVER (PARTITION BY user_id ORDER BY ts) AS d FROM orders;
