-- Tables with every type, put before queries that stand alone.
CREATE TABLE a (k INT, v BIGINT, x DOUBLE, p DECIMAL(10, 2), s STRING, f BOOLEAN, d DATE, t TIME(3), ts TIMESTAMP(3), l TIMESTAMP_LTZ(3),
  n ARRAY<INT>, m MAP<STRING, INT>, r ROW<i INT, q ROW<z STRING>>, y BYTES, at AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE b (k INT, v BIGINT, s STRING, ts TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR ts AS ts)
  WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE sales (id BIGINT, order_id BIGINT, click_id BIGINT, user_id BIGINT, shop STRING, buyer STRING, amount INT, quantity INT,
  price DECIMAL(10, 2), currency STRING, status STRING, product STRING, url STRING, tags ARRAY<STRING>, device ROW<os STRING, version INT>,
  ts TIMESTAMP(3), at AS PROCTIME(), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE rates (currency STRING, rate DECIMAL(10, 4), ts TIMESTAMP(3), PRIMARY KEY (currency) NOT ENFORCED, WATERMARK FOR ts AS ts)
  WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE orders LIKE sales;
CREATE TABLE clicks LIKE sales;
CREATE TABLE shops LIKE sales;
CREATE TABLE shipments LIKE sales;
CREATE TABLE s LIKE sales;
CREATE TABLE t LIKE a;
CREATE TABLE r LIKE a;
