CREATE TABLE result_sink (`k` INT, `s` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT k, SUM(v) AS s FROM (VALUES (1, CAST(10 AS BIGINT)), (1, 20), (2, NULL)) AS t(k, v) GROUP BY k;
