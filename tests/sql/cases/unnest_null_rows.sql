CREATE TABLE result_sink (`id` INT, `how` STRING, `a` INT, `b` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
CREATE TEMPORARY VIEW t AS SELECT * FROM (VALUES (1, ARRAY[ROW(1, 'x'), CAST(NULL AS ROW<a INT, b STRING>), ROW(2, CAST(NULL AS STRING))]),
  (2, CAST(NULL AS ARRAY<ROW<a INT, b STRING>>)), (3, ARRAY[CAST(NULL AS ROW<a INT, b STRING>)])) AS t(id, arr);
INSERT INTO result_sink
SELECT id, 'inner', x.a, x.b FROM t CROSS JOIN UNNEST(arr) AS x(a, b)
UNION ALL SELECT id, 'left', x.a, x.b FROM t LEFT JOIN UNNEST(arr) AS x(a, b) ON TRUE
UNION ALL SELECT id, 'values', x.a, CAST(NULL AS STRING) FROM t CROSS JOIN UNNEST(ARRAY[1, CAST(NULL AS INT)]) AS x(a) WHERE id = 2;
