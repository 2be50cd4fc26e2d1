CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `c0` STRING, `c1` STRING, `c2` STRING, `c3` INT, `c4` INT, `c5` VARCHAR(6), `c6` DECIMAL(12,2), `c7` INT, `c8` INT, `c9` BOOLEAN, `c10` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, COALESCE(status, product) AS c0, NULLIF(currency, 'USD') AS c1, IF(quantity > 3, product, currency) AS c2, IFNULL(quantity, -1) AS c3, CASE quantity WHEN 1 THEN 10 WHEN 2 THEN 20 END AS c4, CASE WHEN quantity > 5 THEN 'big' WHEN quantity IS NULL THEN 'absent' ELSE 'x' END AS c5, CASE WHEN quantity > 5 THEN amount ELSE quantity END AS c6, GREATEST(quantity, 2, 4) AS c7, LEAST(quantity, 2) AS c8, status IS NULL AS c9, COALESCE(NULL, status, currency) AS c10 FROM orders WHERE order_id % 4 = 1;
