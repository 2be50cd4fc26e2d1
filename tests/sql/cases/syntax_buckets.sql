-- files in buckets, and a table that is replaced (there is nothing yet)
CREATE TABLE orders (order_id BIGINT, user_id STRING, quantity INT)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (user_id STRING, n BIGINT, pieces INT) DISTRIBUTED BY HASH (user_id) INTO 3 BUCKETS
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT OVERWRITE result_sink SELECT user_id, COUNT(*), SUM(quantity) FROM orders GROUP BY user_id;
