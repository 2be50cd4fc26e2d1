-- process table functions: state and timers a key, by rows and by batches; rows by themselves with all columns passed on; event time that goes on
CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, quantity INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (what STRING, name STRING, n BIGINT, pieces BIGINT, at TIMESTAMP(3))
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
CREATE FUNCTION totals AS 'case_functions.Totals' LANGUAGE PYTHON;
CREATE FUNCTION batch_totals AS 'case_functions.BatchTotals' LANGUAGE PYTHON;
CREATE FUNCTION words AS 'case_functions.Words' LANGUAGE PYTHON;
CREATE VIEW totalled AS
SELECT * FROM totals(input => (SELECT * FROM orders WHERE user_id IS NOT NULL) PARTITION BY user_id, least => 2, on_time => DESCRIPTOR(ts), uid => 'totals');
INSERT INTO result_sink
SELECT 'rows', user_id, orders, pieces, rowtime FROM totalled
UNION ALL
SELECT 'batches', product, orders, 0, CAST(NULL AS TIMESTAMP(3)) FROM batch_totals(TABLE orders PARTITION BY product)
UNION ALL
SELECT 'window', 'all', COUNT(*), SUM(pieces), window_end
FROM TABLE(TUMBLE(TABLE totalled, DESCRIPTOR(rowtime), INTERVAL '1' DAY)) GROUP BY window_start, window_end
UNION ALL
SELECT 'words', word, COUNT(*), MAX(order_id), CAST(NULL AS TIMESTAMP(3)) FROM words(r => TABLE orders) AS w GROUP BY word;
