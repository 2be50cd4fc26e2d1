CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
WITH w AS (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE quantity IS NOT NULL), g AS (SELECT window_start, window_end, COUNT(*) AS n FROM w GROUP BY window_start, window_end) SELECT * FROM g WHERE n > 5;
