CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `product` STRING, `n` BIGINT, `rk` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT window_start, window_end, product, n, rk FROM (SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS rk FROM (SELECT window_start, window_end, product, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, product)) WHERE rk <= 2;
