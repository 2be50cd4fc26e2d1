CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/shipments.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `shipment_id` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT o.order_id, s.shipment_id FROM orders o JOIN shipments s ON o.order_id = s.order_id AND s.ts - INTERVAL '5' SECOND >= o.ts AND s.ts < o.ts + INTERVAL '25' SECOND;
