CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE rates (currency STRING, rate DECIMAL(12,6), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/rates.json','format'='json');
CREATE TABLE rates_pk (currency STRING, rate DECIMAL(12,6), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector'='filesystem','path'='${DATA}/rates.json','format'='json');
CREATE TABLE result_sink (`ws` TIMESTAMP(3), `t` DECIMAL(38,8))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS ws, SUM(usd) AS t FROM (SELECT o.ts, o.amount * r.rate AS usd FROM orders AS o JOIN rates_pk FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency = o.currency) GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE);
