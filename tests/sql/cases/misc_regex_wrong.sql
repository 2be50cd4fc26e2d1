CREATE TABLE result_sink (`t` STRING, `a` BOOLEAN, `b` BOOLEAN, `c` STRING, `d` STRING, `e` STRING, `f` INT, `g` INT)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT t, REGEXP(t, p) AS a, REGEXP(t, '(a') AS b, REGEXP_EXTRACT(t, p) AS c, REGEXP_EXTRACT(t, '{"a"', 0) AS d, REGEXP_REPLACE(t, p, 'x') AS e,
  REGEXP_COUNT(t, '*') AS f, REGEXP_INSTR(t, p) AS g
FROM (VALUES ('a', '(a'), ('ab', 'a'), (CAST(NULL AS STRING), '(a')) AS v(t, p);
