CREATE TABLE result_sink (`v` STRING, `a` BOOLEAN, `b` BOOLEAN, `c` BOOLEAN, `d` BOOLEAN, `e` BOOLEAN, `f` BOOLEAN, `g` BOOLEAN, `h` BOOLEAN)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT v, v LIKE 'a_c' AS a, v LIKE 'a_' AS b, v LIKE '_' AS c, v LIKE 'a%' AS d, v LIKE '%_' AS e, v LIKE '_%' AS f, v NOT LIKE 'ab_' AS g, v LIKE p AS h
FROM (VALUES (U&'a\000Ac', 'a_c'), (U&'a\000A', 'a_'), (U&'\000A', '_'), (U&'a\000D', 'a_'), (U&'\0085', '_'), (U&'a\2028', 'a_'), (U&'ab\000A', 'ab_'), ('a😀', 'a_'), ('😀', '__'), ('', '_')) AS t(v, p);
