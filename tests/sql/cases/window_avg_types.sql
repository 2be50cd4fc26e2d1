CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `a` INT, `b` DOUBLE, `c` DECIMAL(38,6), `s` DOUBLE, `v` DOUBLE, `mn` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT window_start, AVG(quantity) AS a, AVG(CAST(quantity AS DOUBLE)) AS b, AVG(amount) AS c, STDDEV_POP(CAST(amount AS DOUBLE)) AS s, VAR_SAMP(CAST(quantity AS DOUBLE)) AS v, MIN(product) AS mn FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '2' MINUTE)) GROUP BY window_start, window_end;
