-- Amounts a minute and shop: made-up orders into files. State and output lie on the volume.
SET 'pipeline.name' = 'orders';
SET 'execution.checkpointing.interval' = '10s';
SET 'execution.checkpointing.dir' = '/state/checkpoints';

CREATE TABLE orders (
  id BIGINT,
  shop INT,
  amount DOUBLE,
  ts AS TO_TIMESTAMP_LTZ(id * 100, 3),
  WATERMARK FOR ts AS ts
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '100',
  'fields.id.kind' = 'sequence',
  'fields.id.start' = '0',
  'fields.id.end' = '1000000000',
  'fields.shop.min' = '1',
  'fields.shop.max' = '5'
);

CREATE TABLE per_minute (window_start TIMESTAMP_LTZ(3), shop INT, orders BIGINT, amount DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '/state/output', 'format' = 'json');

INSERT INTO per_minute
SELECT window_start, shop, COUNT(*), SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, shop;
