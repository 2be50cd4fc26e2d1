CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DECIMAL(10,2), quantity INT, currency STRING, status STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/orders.json','format'='json');
CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem','path'='${DATA}/shipments.json','format'='json');
CREATE TABLE result_sink (order_id BIGINT, carrier STRING)
WITH ('connector'='filesystem','path'='${OUT}','format'='json');
INSERT INTO result_sink /*+ OPTIONS('sink.parallelism'='1') */ SELECT /*+ STATE_TTL('o'='1d', 's'='12h') */ o.order_id, s.carrier FROM orders /*+ OPTIONS('source.path.regex-pattern'='.*') */ o JOIN shipments s ON o.order_id = s.order_id WHERE s.carrier = 'dhl';
