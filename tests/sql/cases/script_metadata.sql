CREATE TABLE orders (order_id BIGINT, quantity INT, f STRING METADATA FROM 'file.name' VIRTUAL)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (order_id BIGINT, f STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink SELECT order_id, f FROM orders WHERE quantity = 10;
