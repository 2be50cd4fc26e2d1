-- ON CONFLICT over rows that change, at the end of the input. DO NOTHING: one row of each product is left, whichever subtask it came by:
-- 'eve' for the phone (dan became eve), 'hal' for the watch (gus went); 'dan' of desk came twice and went once, so he is there. Which of
-- several that are left came first depends on the parallelism: the tests of the operator look at that. DO ERROR: counts that were equal for a
-- while, but are different in the end, are in no conflict; of equal rows ('all' comes from both sides of the union) one is written.
CREATE TABLE result_sink (what STRING, product STRING, who STRING, n BIGINT, PRIMARY KEY (what, product) NOT ENFORCED)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
CREATE VIEW cdc AS SELECT * FROM (VALUES
  ('INSERT', 'Laptop', 'ann'), ('INSERT', 'Phone', 'bob'), ('INSERT', 'Laptop', 'cid'), ('INSERT', 'Phone', 'dan'),
  ('DELETE', 'Laptop', 'cid'), ('UPDATE_BEFORE', 'Phone', 'dan'), ('UPDATE_AFTER', 'Phone', 'eve'), ('INSERT', 'Tablet', 'fay'),
  ('DELETE', 'Tablet', 'fay'), ('INSERT', 'Watch', 'gus'), ('INSERT', 'Watch', 'hal'), ('DELETE', 'Watch', 'gus'),
  ('INSERT', 'Desk', 'dan'), ('INSERT', 'Desk', 'dan'), ('INSERT', 'Desk', 'eve'), ('DELETE', 'Desk', 'dan')
) AS t (op, product, who);
CREATE VIEW bought AS SELECT * FROM FROM_CHANGELOG(TABLE cdc);
INSERT INTO result_sink SELECT 'first', product, who, CHAR_LENGTH(who) FROM bought
WHERE who <> 'bob' AND (product <> 'Desk' OR who <> 'eve') ON CONFLICT DO NOTHING;
INSERT INTO result_sink (what, product, n)
SELECT 'all', who, 3 FROM bought WHERE who = 'ann'
UNION ALL
SELECT 'all', who, 2 + COUNT(*) FROM bought WHERE who = 'ann' GROUP BY who
UNION ALL
SELECT 'buyers', CAST(COUNT(DISTINCT who) AS STRING), CHAR_LENGTH(product) FROM bought WHERE product IN ('Phone', 'Laptop') GROUP BY product
ON CONFLICT DO ERROR;
