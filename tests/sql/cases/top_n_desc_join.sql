CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/shipments.json','format'='json');
CREATE TABLE result_sink (`carrier` STRING, `order_id` BIGINT, `amount` DECIMAL(10,2), `rn` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT carrier, order_id, amount, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY carrier ORDER BY amount DESC, order_id) AS rn FROM (SELECT s.carrier, o.order_id, o.amount FROM orders o JOIN shipments s ON o.order_id = s.order_id)) WHERE rn <= 3;
