-- Paid orders and revenue of each minute of event time, printed: flowrun run pipelines/orders_per_minute.sql
CREATE TABLE orders (
  order_id BIGINT,
  user_id STRING,
  product STRING,
  amount DECIMAL(10, 2),
  status STRING,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/orders/',
  'format' = 'json'
);

SELECT window_start, COUNT(*) AS orders, SUM(amount) AS revenue, COUNT(DISTINCT user_id) AS users
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
WHERE status = 'paid'
GROUP BY window_start, window_end;
