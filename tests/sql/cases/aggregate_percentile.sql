CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`currency` STRING, `p` DOUBLE, `both` ARRAY<DOUBLE>, `q` DOUBLE, `n` DOUBLE)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT currency, PERCENTILE(amount, 0.3), PERCENTILE(DISTINCT amount, ARRAY[0.25, 0.75]), PERCENTILE(quantity, 0.5) FILTER (WHERE status = 'paid'), PERCENTILE(n, 0.5, m)
FROM (SELECT currency, status, amount, quantity, SUM(quantity) OVER (PARTITION BY user_id ORDER BY ts) AS n, quantity AS m FROM orders)
GROUP BY currency;
