CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`click_id` BIGINT, `c0` STRING, `c1` INT, `c2` MAP<STRING,STRING>, `c3` ARRAY<STRING>, `c4` ARRAY<STRING>, `c5` ROW<os STRING, version INT>, `c6` ROW<a BIGINT, b STRING>, `c7` MAP<CHAR(1),INT>, `c8` STRING, `c9` STRING, `c10` BOOLEAN, `c11` INT, `c12` BOOLEAN)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT click_id, attrs['k2'] AS c0, CARDINALITY(attrs) AS c1, attrs AS c2, ARRAY_SORT(MAP_KEYS(attrs)) AS c3, ARRAY_SORT(MAP_VALUES(attrs)) AS c4, device AS c5, CAST(ROW(click_id, user_id) AS ROW<a BIGINT, b STRING>) AS c6, MAP['v', device.version] AS c7, MAP['a', url, 'b', user_id]['b'] AS c8, COALESCE(attrs['k1'], attrs['k2'], 'none') AS c9, device.os = 'ios' AND device.version > 10 AS c10, TRY_CAST(attrs['k3'] AS INT) + 1 AS c11, attrs['zz'] IS NULL AS c12 FROM clicks WHERE click_id % 4 = 1;
