CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`k` STRING, `e` TIMESTAMP(3), `s` DECIMAL(38,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT LOWER(TRIM(product)) AS k, window_end AS e, SUM(amount * quantity) AS s FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '3' MINUTE)) GROUP BY LOWER(TRIM(product)), window_start, window_end HAVING SUM(amount) > 200 AND MAX(quantity) >= 5;
