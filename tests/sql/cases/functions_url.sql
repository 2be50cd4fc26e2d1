CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`click_id` BIGINT, `c0` STRING, `c1` STRING, `c2` STRING, `c3` STRING, `c4` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT click_id, PARSE_URL('http://h.com' || url, 'PATH') AS c0, PARSE_URL('http://h.com' || url, 'QUERY', 'ref') AS c1, SPLIT_INDEX(url, '?', 1) AS c2, SPLIT_INDEX(url, '?', 5) AS c3, STR_TO_MAP(SPLIT_INDEX(url, '?', 1), '&', '=')['ref'] AS c4 FROM clicks WHERE click_id % 4 = 1;
