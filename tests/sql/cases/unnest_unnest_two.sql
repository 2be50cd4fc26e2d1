CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`click_id` BIGINT, `tag` STRING, `k` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT click_id, tag, k FROM clicks CROSS JOIN UNNEST(tags) AS t(tag) CROSS JOIN UNNEST(attrs) AS m(k, v);
