CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`s` TIMESTAMP(3), `u` BIGINT, `q` INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS s, COUNT(DISTINCT user_id) AS u, SUM(quantity) FILTER (WHERE status = 'paid') AS q FROM orders WHERE amount > 3 GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) HAVING COUNT(*) > 2;
