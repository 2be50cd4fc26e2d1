CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`currency` STRING, `e` TIMESTAMP(3), `n` BIGINT, `run` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT currency, e, n, SUM(n) OVER (PARTITION BY currency ORDER BY wt ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS run FROM (SELECT currency, window_end AS e, window_time AS wt, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY currency, window_start, window_end, window_time);
