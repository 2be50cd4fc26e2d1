CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE rates (currency STRING, rate DECIMAL(12,6), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/rates.json','format'='json');
CREATE VIEW rv AS SELECT currency, rate, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) AS rn FROM rates) WHERE rn = 1;
CREATE VIEW t AS SELECT o.ts, o.currency AS c, o.amount * r.rate AS usd FROM orders o LEFT JOIN rv FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency;
CREATE TABLE result_sink (`window_start` TIMESTAMP(3), `window_end` TIMESTAMP(3), `c` STRING, `usd` DECIMAL(38,8))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT window_start, window_end, c, SUM(usd) AS usd FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' MINUTE)) GROUP BY window_start, window_end, c;
