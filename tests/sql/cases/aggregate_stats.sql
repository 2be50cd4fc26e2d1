CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`currency` STRING, `a` DOUBLE, `b` DOUBLE, `c` DOUBLE, `d` DOUBLE, `e` INT, `f` DECIMAL(38,6), `g` DOUBLE)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT currency, STDDEV_POP(CAST(amount AS DOUBLE)) AS a, STDDEV_SAMP(CAST(amount AS DOUBLE)) AS b, VAR_POP(CAST(quantity AS DOUBLE)) AS c, VARIANCE(CAST(quantity AS DOUBLE)) AS d, STDDEV(quantity) AS e, VAR_POP(amount) AS f, AVG(CAST(amount AS DOUBLE)) AS g FROM orders GROUP BY currency;
