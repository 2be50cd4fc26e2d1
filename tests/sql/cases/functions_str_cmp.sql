CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `c0` BOOLEAN, `c1` BOOLEAN, `c2` BOOLEAN, `c3` BOOLEAN, `c4` BOOLEAN, `c5` BOOLEAN, `c6` BOOLEAN, `c7` BOOLEAN, `c8` BOOLEAN, `c9` BOOLEAN, `c10` BOOLEAN, `c11` BOOLEAN)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, product > 'b' AS c0, status = 'paid' OR status IS NULL AS c1, status <> 'paid' AS c2, status IS DISTINCT FROM 'paid' AS c3, (status = 'paid') IS NOT TRUE AS c4, (status = 'paid') IS UNKNOWN AS c5, NOT (quantity > 2) AS c6, quantity BETWEEN 2 AND 5 AS c7, quantity NOT BETWEEN SYMMETRIC 5 AND 2 AS c8, quantity IN (1, 2, NULL) AS c9, quantity NOT IN (1, NULL) AS c10, status IN ('paid','new') AND currency = 'USD' AS c11 FROM orders WHERE order_id % 4 = 1;
