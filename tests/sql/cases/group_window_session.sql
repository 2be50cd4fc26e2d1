CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `s` TIMESTAMP(3), `e` TIMESTAMP(3), `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT user_id, SESSION_START(ts, INTERVAL '15' SECOND) AS s, SESSION_END(ts, INTERVAL '15' SECOND) AS e, COUNT(*) AS n FROM clicks GROUP BY user_id, SESSION(ts, INTERVAL '15' SECOND) HAVING COUNT(*) > 1;
