CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `product` STRING, `status` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT a.order_id, b.product, b.status FROM orders a JOIN (SELECT product, status, COUNT(*) AS n FROM orders GROUP BY product, status) b ON a.status = b.status AND a.product = b.product WHERE b.n > 60 AND a.quantity > 7;
