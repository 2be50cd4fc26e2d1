CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE rates (currency STRING, rate DECIMAL(12,6), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/rates.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT o.order_id, t.n FROM orders o JOIN (SELECT currency, COUNT(*) AS n FROM rates GROUP BY currency) t ON o.currency = t.currency;
