SET 'table.exec.state.ttl' = '1 h';
SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '1 s';
SET 'table.exec.mini-batch.size' = '100';
SET 'execution.runtime-mode' = 'streaming';
SET 'pipeline.name' = 'x';
SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE result_sink (u STRING, n BIGINT)
WITH ('connector'='filesystem','path'='${OUT}','format'='debezium-json');
INSERT INTO result_sink SELECT user_id, COUNT(DISTINCT product) FROM orders GROUP BY user_id;
