CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/shipments.json','format'='json');
CREATE TABLE result_sink (`n` BIGINT, `users` BIGINT, `s` BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink
SELECT n, COUNT(*) AS users, SUM(ships) AS s FROM (SELECT o.user_id, o.n, COALESCE(x.ships, 0) AS ships FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) o LEFT JOIN (SELECT o2.user_id, COUNT(*) AS ships FROM orders o2 JOIN shipments s ON o2.order_id = s.order_id GROUP BY o2.user_id) x ON o.user_id = x.user_id) GROUP BY n;
