CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE clicks (click_id BIGINT, user_id STRING, url STRING, tags ARRAY<STRING>, attrs MAP<STRING,STRING>, device ROW<os STRING, version INT>, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/clicks.json','format'='json');
CREATE TABLE result_sink (k STRING, n BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
CREATE TABLE other (k STRING) WITH ('connector'='blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO result_sink SELECT currency, COUNT(*) FROM orders GROUP BY currency;
INSERT INTO other SELECT url FROM clicks;
INSERT INTO result_sink SELECT device.os, COUNT(*) FROM clicks GROUP BY device.os;
END;
