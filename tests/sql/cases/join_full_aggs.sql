CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (`u1` STRING, `u2` STRING, `a` BIGINT, `b` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT o.user_id AS u1, c.user_id AS u2, o.a, c.b FROM (SELECT user_id, COUNT(*) AS a FROM orders WHERE amount > 100 GROUP BY user_id) o FULL OUTER JOIN (SELECT user_id, COUNT(*) AS b FROM clicks WHERE device.version > 15 GROUP BY user_id) c ON o.user_id = c.user_id AND o.a > 2;
