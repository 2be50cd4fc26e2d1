CREATE TABLE o (order_id BIGINT, user_id STRING) WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/shipments.json','format'='json');
CREATE TABLE result_sink (order_id BIGINT, user_id STRING, s_id BIGINT, o2 BIGINT, carrier STRING, ts TIMESTAMP(3), n INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink SELECT o.*, s.*, 1 AS n FROM o, shipments AS s WHERE o.order_id = s.order_id;
