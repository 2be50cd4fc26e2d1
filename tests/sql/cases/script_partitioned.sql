CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (user_id STRING, amount DECIMAL(10,2), currency STRING) PARTITIONED BY (currency)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink SELECT user_id, amount, currency FROM orders WHERE amount > 50;
