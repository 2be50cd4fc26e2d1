CREATE TABLE result_sink (a INT, b STRING, c DECIMAL(5,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink VALUES (1, 'x', 1.5), (2, CAST(NULL AS STRING), 2), (3, 'it''s', 3.25);
