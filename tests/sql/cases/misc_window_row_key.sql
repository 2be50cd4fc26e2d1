CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`d` STRING, `window_end` TIMESTAMP(3), `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT device.os AS d, window_end, COUNT(DISTINCT device.version) AS n FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)) GROUP BY device.os, window_start, window_end;
