CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE rates (currency STRING, rate DECIMAL(12,6), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (currency) NOT ENFORCED)
WITH ('connector'='filesystem','path'='${DATA}/rate_changes.json','format'='debezium-json');
CREATE VIEW last_rates AS SELECT currency, rate, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) AS rn FROM rates) WHERE rn = 1 AND rate > 1.05;
CREATE VIEW high_rates AS SELECT * FROM rates WHERE rate > 1.05;
CREATE TABLE result_sink (`order_id` BIGINT, `seen` DECIMAL(12,6), `direct` DECIMAL(12,6))
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink
SELECT o.order_id, v.rate AS seen, h.rate AS direct
FROM orders AS o
LEFT JOIN last_rates FOR SYSTEM_TIME AS OF o.ts AS v ON o.currency = v.currency
LEFT JOIN high_rates FOR SYSTEM_TIME AS OF o.ts AS h ON o.currency = h.currency;
