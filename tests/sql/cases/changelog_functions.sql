-- rows that say which change they are as a table, that table aggregated, and rows that never change as a changelog, both ways
CREATE TABLE result_sink (what STRING, id INT, name STRING, n BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
CREATE VIEW cdc AS SELECT * FROM (VALUES
  (1, 'c', 'Alice'), (2, 'r', 'Bob'), (1, 'ub', 'Alice'), (1, 'ua', 'Alice2'), (3, 'c', 'Bob'), (2, 'd', 'Bob'), (4, 'c', 'Eve'),
  (5, '?', 'nobody'), (6, CAST(NULL AS STRING), 'nobody'), (7, 'ub', 'x'), (7, 'c', 'x')
) AS t (id, op, name);
CREATE VIEW people AS SELECT * FROM FROM_CHANGELOG(
  input => TABLE cdc PARTITION BY id,
  op_mapping => MAP['c, r', 'INSERT', 'ub', 'UPDATE_BEFORE', 'ua', 'UPDATE_AFTER', 'd', 'DELETE'],
  error_handling => 'SKIP');
CREATE VIEW inserts AS SELECT * FROM TO_CHANGELOG(
  (SELECT id, name FROM (VALUES (8, 'Fay'), (9, 'Gil')) AS v (id, name)), DESCRIPTOR(operation), MAP['INSERT, UPDATE_AFTER', 'put', 'DELETE', 'del']);
INSERT INTO result_sink
SELECT 'table', id, name, 1 FROM people
UNION ALL SELECT 'count', 0, name, COUNT(*) FROM people GROUP BY name
UNION ALL SELECT operation, id, name, 0 FROM inserts
UNION ALL SELECT 'back', id, name, 0 FROM FROM_CHANGELOG(TABLE inserts, DESCRIPTOR(operation), MAP['put', 'INSERT']);
