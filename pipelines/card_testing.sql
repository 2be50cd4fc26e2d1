-- A small payment that the same user's next one, a large one, follows within 30 seconds: card_testing.yaml as a pattern.
CREATE TABLE orders (
  order_id BIGINT,
  user_id STRING,
  amount DOUBLE,
  status STRING,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/orders/',
  'format' = 'json'
);

CREATE TABLE alerts (
  user_id STRING,
  tried BIGINT,
  order_id BIGINT,
  amount DOUBLE,
  ts TIMESTAMP(3)
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT:-out}/card_testing_sql/',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

INSERT INTO alerts
SELECT user_id, tried, order_id, amount, ts
FROM (
  SELECT order_id, user_id, amount, ts FROM orders WHERE status = 'paid' AND amount IS NOT NULL
) MATCH_RECOGNIZE (
  PARTITION BY user_id
  ORDER BY ts
  MEASURES
    SMALL.order_id AS tried,
    LARGE.order_id AS order_id,
    LARGE.amount AS amount,
    LARGE.ts AS ts
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (SMALL LARGE)
  DEFINE
    SMALL AS SMALL.amount < 10,
    LARGE AS LARGE.amount > 60 AND LARGE.ts <= SMALL.ts + INTERVAL '30' SECOND
);
