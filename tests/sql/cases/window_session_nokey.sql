CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/shipments.json','format'='json');
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(SESSION(TABLE shipments, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY window_start, window_end;
