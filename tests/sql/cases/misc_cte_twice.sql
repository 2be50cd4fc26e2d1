CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (`a` STRING, `b` STRING, `n` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
WITH c AS (SELECT user_id, currency, COUNT(*) AS n FROM orders GROUP BY user_id, currency) SELECT x.currency AS a, y.currency AS b, COUNT(*) AS n FROM c x JOIN c y ON x.user_id = y.user_id AND x.currency < y.currency GROUP BY x.currency, y.currency;
