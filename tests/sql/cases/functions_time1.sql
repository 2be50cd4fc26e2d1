CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `c0` BIGINT, `c1` BIGINT, `c2` BIGINT, `c3` BIGINT, `c4` BIGINT, `c5` BIGINT, `c6` BIGINT, `c7` BIGINT, `c8` BIGINT, `c9` BIGINT, `c10` BIGINT, `c11` TIMESTAMP(3), `c12` TIMESTAMP(3), `c13` TIMESTAMP(3), `c14` TIMESTAMP(3), `c15` TIMESTAMP(3), `c16` STRING, `c17` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT order_id, YEAR(ts) AS c0, MONTH(ts) AS c1, DAYOFMONTH(ts) AS c2, DAYOFYEAR(ts) AS c3, DAYOFWEEK(ts) AS c4, WEEK(ts) AS c5, QUARTER(ts) AS c6, MINUTE(ts) AS c7, SECOND(ts) AS c8, EXTRACT(SECOND FROM ts) AS c9, EXTRACT(MILLISECOND FROM ts) AS c10, CEIL(ts TO MINUTE) AS c11, FLOOR(ts TO HOUR) AS c12, FLOOR(ts TO DAY) AS c13, CEIL(ts TO DAY) AS c14, FLOOR(ts TO MONTH) AS c15, DATE_FORMAT(ts, 'yyyy/MM/dd HH:mm:ss.SSS') AS c16, DATE_FORMAT(ts, 'EEE dd MMM yy') AS c17 FROM orders WHERE order_id % 4 = 1;
