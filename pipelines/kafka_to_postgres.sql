-- Orders from Kafka with the tier of their customer, who is looked up in PostgreSQL: revenue of each tier and minute to
-- PostgreSQL, large orders to Kafka, and every change of the customers to Kafka as well. It runs until it is stopped.
--
-- `python -m tests.servers` starts a broker and a database with sample data, and prints the command that runs this.

SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE orders (
  order_id BIGINT,
  customer BIGINT,
  amount DOUBLE,
  ts TIMESTAMP(3),
  seen AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = '${BROKERS:-localhost:9092}',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE customers (
  id BIGINT,
  name STRING,
  tier STRING
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://${POSTGRES_HOST:-localhost}:${POSTGRES_PORT:-5432}/${POSTGRES_DATABASE:-shop}',
  'table-name' = 'customers',
  'username' = '${POSTGRES_USER:-flowrun}',
  'password' = '${POSTGRES_PASSWORD:-a-password-of-your-own}',
  'lookup.cache' = 'PARTIAL',
  'lookup.partial-cache.max-rows' = '10000',
  'lookup.partial-cache.expire-after-write' = '1 min'
);

CREATE TABLE customer_changes (
  id BIGINT,
  name STRING,
  tier STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'postgres-cdc',
  'hostname' = '${POSTGRES_HOST:-localhost}',
  'port' = '${POSTGRES_PORT:-5432}',
  'database-name' = '${POSTGRES_DATABASE:-shop}',
  'table-name' = 'customers',
  'username' = '${POSTGRES_USER:-flowrun}',
  'password' = '${POSTGRES_PASSWORD:-a-password-of-your-own}',
  'slot.name' = 'kafka_to_postgres'
);

CREATE TABLE revenue (
  tier STRING,
  window_start TIMESTAMP(3),
  orders BIGINT,
  amount DOUBLE,
  PRIMARY KEY (tier, window_start) NOT ENFORCED
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://${POSTGRES_HOST:-localhost}:${POSTGRES_PORT:-5432}/${POSTGRES_DATABASE:-shop}',
  'table-name' = 'revenue',
  'username' = '${POSTGRES_USER:-flowrun}',
  'password' = '${POSTGRES_PASSWORD:-a-password-of-your-own}',
  'sink.delivery-guarantee' = 'exactly-once'
);

CREATE TABLE large_orders (
  order_id BIGINT,
  name STRING,
  amount DOUBLE
) WITH (
  'connector' = 'kafka',
  'topic' = 'large_orders',
  'properties.bootstrap.servers' = '${BROKERS:-localhost:9092}',
  'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = 'kafka_to_postgres'
);

CREATE TABLE customers_in_kafka (
  id BIGINT,
  name STRING,
  tier STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'customers',
  'properties.bootstrap.servers' = '${BROKERS:-localhost:9092}',
  'key.format' = 'json',
  'value.format' = 'json'
);

CREATE VIEW orders_of_customers AS
SELECT o.order_id, o.amount, o.ts, c.name, c.tier
FROM orders AS o
JOIN customers FOR SYSTEM_TIME AS OF o.seen AS c ON o.customer = c.id;

INSERT INTO revenue
SELECT tier, window_start, COUNT(*), SUM(amount)
FROM TUMBLE(TABLE orders_of_customers, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY tier, window_start, window_end;

INSERT INTO large_orders SELECT order_id, name, amount FROM orders_of_customers WHERE amount >= 100;

INSERT INTO customers_in_kafka SELECT id, name, tier FROM customer_changes;
