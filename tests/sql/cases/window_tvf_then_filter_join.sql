CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/shipments.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `window_start` TIMESTAMP(3), `carrier` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT t.order_id, t.window_start, s.carrier FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS t JOIN shipments s ON s.order_id = t.order_id WHERE t.window_start >= TIMESTAMP '2024-03-01 10:00:00';
