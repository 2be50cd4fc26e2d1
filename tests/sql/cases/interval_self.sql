CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`a` BIGINT, `b` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT x.order_id AS a, y.order_id AS b FROM orders x JOIN orders y ON x.user_id = y.user_id AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '5' SECOND AND x.order_id < y.order_id;
