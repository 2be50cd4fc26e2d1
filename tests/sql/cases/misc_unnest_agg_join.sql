CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `k` STRING, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT o.user_id, m.k, COUNT(*) AS n FROM orders o JOIN clicks c ON o.user_id = c.user_id AND c.ts BETWEEN o.ts - INTERVAL '10' SECOND AND o.ts CROSS JOIN UNNEST(c.attrs) AS m(k, v) GROUP BY o.user_id, m.k;
