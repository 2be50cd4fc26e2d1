CREATE TABLE orders (order_id BIGINT, ts STRING, rt AS TO_TIMESTAMP(ts), WATERMARK FOR rt AS rt - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (ws TIMESTAMP(3), n BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(rt), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
