CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`user_id` STRING, `n` BIGINT, `c` BIGINT, `total` DECIMAL(38,2))
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT o.user_id, o.n, c.c, o.total FROM (SELECT user_id, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY user_id) o JOIN (SELECT user_id, COUNT(*) AS c FROM clicks GROUP BY user_id) c ON o.user_id = c.user_id;
