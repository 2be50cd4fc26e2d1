-- The three products that earn most in each currency, kept up to date in files that hold one row a rank.
CREATE TABLE orders (
  order_id BIGINT,
  product STRING,
  amount DECIMAL(10, 2),
  currency STRING,
  status STRING
) WITH (
  'connector' = 'filesystem',
  'path' = '${SAMPLES:-samples}/orders/',
  'format' = 'json'
);

CREATE TABLE top_products (
  currency STRING,
  place BIGINT,
  product STRING,
  revenue DECIMAL(38, 2),
  PRIMARY KEY (currency, place) NOT ENFORCED
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT:-out}/top_products/',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

INSERT INTO top_products
SELECT currency, place, product, revenue
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY revenue DESC, product) AS place
  FROM (
    SELECT currency, product, SUM(amount) AS revenue
    FROM orders
    WHERE status = 'paid'
    GROUP BY currency, product
  )
)
WHERE place <= 3;
