CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE orders2 (x AS quantity * 2) LIKE orders;
CREATE TABLE sink0 (order_id BIGINT, x INT) WITH ('connector'='filesystem','path'='${OUT}','format'='json');
CREATE TABLE result_sink LIKE sink0;
INSERT INTO result_sink SELECT order_id, x FROM orders2;
