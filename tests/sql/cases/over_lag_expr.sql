CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `diff` DECIMAL(11,2), `gap` INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, amount - LAG(amount) OVER (PARTITION BY user_id ORDER BY ts) AS diff, TIMESTAMPDIFF(SECOND, LAG(ts) OVER (PARTITION BY user_id ORDER BY ts), ts) AS gap FROM orders;
