CREATE TABLE result_sink (`a` INT, `b` STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT a, b FROM (VALUES (1, 'x'), (2, 'yy'), (NULL, 'z')) AS t(a, b);
