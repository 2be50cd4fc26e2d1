CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, total AS amount * quantity, d AS CAST(ts AS DATE), ts TIMESTAMP(3), m AS DATE_FORMAT(ts, 'HH:mm'), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (order_id BIGINT, total DECIMAL(21,2), d DATE, m STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink SELECT order_id, total, d, m FROM orders WHERE total > 100;
