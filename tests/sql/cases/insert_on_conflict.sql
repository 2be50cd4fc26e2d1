-- several rows of the query for one primary key of the sink: the last that stands, of rows that are taken back too; or the first
CREATE TABLE result_sink (what STRING, product STRING, who STRING, n BIGINT, PRIMARY KEY (what, product) NOT ENFORCED)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
CREATE VIEW cdc AS SELECT * FROM (VALUES
  ('INSERT', 'Laptop', 'ann'), ('INSERT', 'Phone', 'bob'), ('INSERT', 'Laptop', 'cid'), ('INSERT', 'Phone', 'dan'),
  ('DELETE', 'Laptop', 'cid'), ('UPDATE_BEFORE', 'Phone', 'dan'), ('UPDATE_AFTER', 'Phone', 'eve'), ('INSERT', 'Tablet', 'fay'),
  ('DELETE', 'Tablet', 'fay')
) AS t (op, product, who);
CREATE VIEW bought AS SELECT * FROM FROM_CHANGELOG(TABLE cdc);
INSERT INTO result_sink
SELECT 'last', product, who, CHAR_LENGTH(who) FROM bought
UNION ALL
SELECT 'counted', 'all', who, COUNT(*) FROM bought WHERE who = 'ann' GROUP BY who
ON CONFLICT DO DEDUPLICATE;
INSERT INTO result_sink (what, product, who)
SELECT 'first', product, who FROM (VALUES ('Laptop', 'ann'), ('Phone', 'bob'), ('Laptop', 'cid'), ('Phone', CAST(NULL AS STRING))) AS v (product, who)
ON CONFLICT DO NOTHING;
