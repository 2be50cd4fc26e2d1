-- names that begin with $, functions by catalog and database, a constant in GROUP BY (which is no position, as in Flink)
CREATE TABLE $orders (order_id BIGINT, user_id STRING, $doubled AS order_id * 2)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink ($who STRING, `$one` INT, n BIGINT, top BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
CREATE FUNCTION default_catalog.default_database.masked AS 'case_functions.masked' LANGUAGE PYTHON;
CREATE FUNCTION repeated AS 'case_functions.repeated' LANGUAGE PYTHON; -- with two signatures and a default
CREATE VIEW $seen AS SELECT default_catalog.default_database.masked(user_id) AS $who, $doubled FROM $orders WHERE user_id IS NOT NULL;
INSERT INTO result_sink
SELECT $who, 1, COUNT(*), MAX($s.$doubled) FROM $seen AS $s GROUP BY 1, default_database.masked('x'), $who
UNION ALL
SELECT 'all', 2, COUNT(*), MAX($doubled) FROM $seen GROUP BY 2
UNION ALL
SELECT repeated(LOWER(CAST($one AS STRING)), 3), repeated($one), COUNT(*), 0 FROM (SELECT CAST(4 AS INT) AS $one FROM $orders) GROUP BY $one;
