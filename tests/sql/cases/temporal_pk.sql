CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE rates (currency STRING, rate DECIMAL(12,6), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/rates.json','format'='json');
CREATE TABLE rates_pk (currency STRING, rate DECIMAL(12,6), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector'='filesystem','path'='${DATA}/rates.json','format'='json');
CREATE TABLE result_sink (`order_id` BIGINT, `c` DECIMAL(23,8), `rts` TIMESTAMP(3))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT o.order_id, CAST(o.amount * r.rate AS DECIMAL(23,8)) AS c, r.ts AS rts FROM orders AS o LEFT JOIN rates_pk FOR SYSTEM_TIME AS OF o.ts AS r ON r.currency = o.currency;
