CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `u` BIGINT, `p` BIGINT, `s` DECIMAL(38,2), `d` INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT window_start, window_end, COUNT(DISTINCT user_id) AS u, COUNT(DISTINCT product) FILTER (WHERE status = 'paid') AS p, SUM(amount) FILTER (WHERE currency <> 'USD') AS s, SUM(DISTINCT quantity) AS d FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '2' MINUTE)) GROUP BY window_start, window_end;
