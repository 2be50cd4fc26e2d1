-- Each paid order in dollars, at the rate that held when it was made: a temporal join with a table of versions.
CREATE TABLE orders (
  order_id BIGINT,
  user_id STRING,
  amount DECIMAL(10, 2),
  currency STRING,
  status STRING,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/orders/',
  'format' = 'json'
);

-- A primary key and a watermark make versions: each row holds for its currency until the next one comes.
CREATE TABLE rates (
  currency STRING,
  usd DECIMAL(10, 6),
  ts TIMESTAMP(3),
  PRIMARY KEY (currency) NOT ENFORCED,
  WATERMARK FOR ts AS ts
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/rates/',
  'format' = 'json'
);

CREATE TABLE dollars (
  order_id BIGINT,
  user_id STRING,
  amount_usd DECIMAL(10, 2),
  ts TIMESTAMP(3)
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT:-out}/orders_in_dollars/',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

INSERT INTO dollars
SELECT o.order_id, o.user_id, CAST(o.amount * r.usd AS DECIMAL(10, 2)), o.ts
FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency
WHERE o.status = 'paid';
