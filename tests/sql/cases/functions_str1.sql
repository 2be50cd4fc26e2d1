CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `c0` STRING, `c1` STRING, `c2` STRING, `c3` STRING, `c4` STRING, `c5` STRING, `c6` STRING, `c7` STRING, `c8` STRING, `c9` INT, `c10` INT, `c11` INT, `c12` STRING, `c13` STRING, `c14` STRING, `c15` INT, `c16` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, LEFT(product, 3) AS c0, RIGHT(product, 2) AS c1, REPEAT(currency, 2) AS c2, OVERLAY(product PLACING 'XX' FROM 2 FOR 1) AS c3, LTRIM(product) AS c4, RTRIM(product) AS c5, TRIM(LEADING 'a' FROM product) AS c6, TRIM(BOTH ' ' FROM product) AS c7, TRIM(TRAILING FROM product) AS c8, LOCATE('n', product) AS c9, LOCATE('n', product, 3) AS c10, INSTR(product, 'e') AS c11, RPAD(user_id, 5, '*') AS c12, SUBSTR(product, -3) AS c13, SUBSTR(product, 2) AS c14, ASCII(currency) AS c15, TRANSLATE(product, 'aeo', '123') AS c16 FROM orders WHERE order_id % 4 = 1;
