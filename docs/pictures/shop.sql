-- Orders of a shop: revenue by minute and currency, large orders, and orders with what was paid for them.
SET 'pipeline.name' = 'shop revenue';
SET 'parallelism.default' = '2';
SET 'execution.checkpointing.interval' = '2 s';
SET 'state.checkpoints.dir' = '{state}';

CREATE TABLE orders (
  order_id BIGINT,
  user_id BIGINT,
  currency INT,
  amount DOUBLE,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '6000',
  'fields.user_id.min' = '1',
  'fields.user_id.max' = '500',
  'fields.currency.min' = '1',
  'fields.currency.max' = '12',
  'fields.amount.min' = '1',
  'fields.amount.max' = '900',
  'fields.ts.max-past' = '1 s'
);

CREATE TABLE payments (
  payer BIGINT,
  paid DOUBLE,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '1500',
  'fields.payer.min' = '1',
  'fields.payer.max' = '500',
  'fields.ts.max-past' = '1 s'
);

CREATE TABLE revenue (minute TIMESTAMP(3), currency INT, total DOUBLE, orders BIGINT)
  WITH ('connector' = 'blackhole');
CREATE TABLE best (currency INT, total DOUBLE, place BIGINT, PRIMARY KEY (place) NOT ENFORCED)
  WITH ('connector' = 'blackhole');
CREATE TABLE settled (user_id BIGINT, amount DOUBLE, paid DOUBLE)
  WITH ('connector' = 'blackhole');

CREATE VIEW priced AS
  SELECT order_id, user_id, currency, amount * (1 + currency / 100.0) AS amount, ts
  FROM orders
  WHERE amount > 5;

INSERT INTO revenue
  SELECT window_start, currency, SUM(amount), COUNT(*)
  FROM TABLE(TUMBLE(TABLE priced, DESCRIPTOR(ts), INTERVAL '5' SECOND))
  GROUP BY window_start, window_end, currency;

INSERT INTO best
  SELECT currency, total, place FROM (
    SELECT currency, total, ROW_NUMBER() OVER (ORDER BY total DESC) AS place
    FROM (SELECT currency, SUM(amount) AS total FROM priced GROUP BY currency)
  ) WHERE place <= 3;

INSERT INTO settled
  SELECT o.user_id, o.amount, p.paid
  FROM priced o JOIN payments p
    ON o.user_id = p.payer
   AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' SECOND;
