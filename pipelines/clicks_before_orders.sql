-- Two results from one pass over the orders: the pages that a user looked at in the 10 seconds before an order, and how many there were a minute.
CREATE TABLE clicks (
  user_id STRING,
  url STRING,
  device ROW<os STRING, version INT>,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/clicks/',
  'format' = 'json'
);

CREATE TABLE orders (
  order_id BIGINT,
  user_id STRING,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/orders/',
  'format' = 'json'
);

CREATE TABLE seen (
  order_id BIGINT,
  url STRING,
  os STRING,
  clicked_at TIMESTAMP(3),
  ordered_at TIMESTAMP(3)
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT:-out}/seen_before_orders/',
  'sink.mode' = 'overwrite',
  'format' = 'csv'
);

CREATE TABLE orders_a_minute (
  window_start TIMESTAMP(3),
  orders BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT:-out}/orders_a_minute/',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

EXECUTE STATEMENT SET
BEGIN

INSERT INTO seen
SELECT o.order_id, c.url, c.device.os, c.ts, o.ts
FROM orders AS o
JOIN clicks AS c
  ON o.user_id = c.user_id AND c.ts BETWEEN o.ts - INTERVAL '10' SECOND AND o.ts;

INSERT INTO orders_a_minute
SELECT window_start, COUNT(*)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;

END;
