CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `a` DATE, `b` BOOLEAN, `c` TIMESTAMP(3), `d` STRING, `e` DECIMAL(10,2), `f` DECIMAL(10,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT user_id, MIN(CAST(ts AS DATE)) AS a, MAX(quantity > 3) AS b, MAX(ts) AS c, MIN(product) AS d, MAX(amount) AS e, MIN(amount) AS f FROM orders GROUP BY user_id;
