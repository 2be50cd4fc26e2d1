-- Paid orders and revenue of each minute: what happened before 10:06 from files, the rest from Kafka, as one table. The files go
-- on for a while after 10:06, and the topic begins before it; each order counts once all the same. It runs until it is stopped.
--
-- `python -m tests.servers` starts a broker with sample data, and prints the command that runs this.

SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE orders (
  order_id BIGINT,
  user_id STRING,
  amount DECIMAL(10, 2),
  status STRING,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'hybrid',
  'source-identifiers' = 'history,live',
  'switch-time' = '2024-03-01T10:06:00Z',

  'history.connector' = 'filesystem',
  'history.path' = '${SAMPLES:-samples}/orders/',
  'history.format' = 'json',

  'live.connector' = 'kafka',
  'live.topic' = 'live_orders',
  'live.properties.bootstrap.servers' = '${BROKERS:-localhost:9092}',
  'live.scan.bounded.mode' = '${LIVE_END:-unbounded}',
  'live.format' = 'json'
);

CREATE TABLE orders_per_minute (
  window_start TIMESTAMP(3),
  orders BIGINT,
  revenue DECIMAL(38, 2),
  users BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT:-output}/orders_history_then_kafka',
  'format' = 'json'
);

INSERT INTO orders_per_minute
SELECT window_start, COUNT(*), SUM(amount), COUNT(DISTINCT user_id)
FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
WHERE status = 'paid'
GROUP BY window_start, window_end;
