CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TEMPORARY VIEW allv (k, ts) AS SELECT currency, ts FROM orders UNION ALL SELECT device.os, ts FROM clicks;
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `k` STRING, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT window_start, window_end, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE allv, DESCRIPTOR(ts), INTERVAL '2' MINUTE)) GROUP BY window_start, window_end, k;
