CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`currency` STRING, `window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `u` BIGINT, `p` BIGINT, `mn` DECIMAL(10,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT currency, window_start, window_end, COUNT(DISTINCT user_id) FILTER (WHERE amount > 20) AS u, COUNT(DISTINCT product) AS p, MIN(amount) FILTER (WHERE status IS NULL) AS mn FROM TABLE(CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)) GROUP BY currency, window_start, window_end;
