CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`product` STRING, `following` STRING, `r` BIGINT, `quarter` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT product, LEAD(product) OVER w, RANK() OVER w, NTILE(4) OVER w FROM (SELECT product, SUM(quantity) AS n FROM orders WHERE product IS NOT NULL GROUP BY product) WINDOW w AS (ORDER BY product DESC);
