SET 'table.local-time-zone' = 'UTC';
CREATE TABLE orders (currency STRING, ts TIMESTAMP(3), t AS CAST(ts AS TIMESTAMP_LTZ(3)), WATERMARK FOR t AS t - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (k STRING, t TIMESTAMP_LTZ(3), n BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink SELECT currency, window_time, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(t), INTERVAL '2' MINUTE)) GROUP BY currency, window_start, window_end, window_time;
