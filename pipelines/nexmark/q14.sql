-- Nexmark q14: Bids in a range of prices, with a part of the day and the number of the letter c from a Python function.

CREATE TABLE events (
  event_type INT,
  person ROW<
    id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR,
    dateTime TIMESTAMP(3), extra VARCHAR>,
  auction ROW<
    id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
    dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR>,
  bid ROW<
    auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    dateTime TIMESTAMP(3), extra VARCHAR>,
  `dateTime` AS
    CASE
      WHEN event_type = 0 THEN person.dateTime
      WHEN event_type = 1 THEN auction.dateTime
      ELSE bid.dateTime
    END,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '${EVENTS}',
  'format' = '${FORMAT:-json}'
);

CREATE VIEW bid AS
SELECT
  bid.auction, bid.bidder, bid.price, bid.channel, bid.url,
  `dateTime`, bid.extra
FROM events
WHERE event_type = 2;

CREATE FUNCTION count_char AS 'functions.count_char' LANGUAGE PYTHON;

CREATE TABLE nexmark_q14 (
  auction BIGINT,
  bidder BIGINT,
  price DECIMAL(23, 3),
  bidTimeType VARCHAR,
  `dateTime` TIMESTAMP(3),
  extra VARCHAR,
  c_counts BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT}',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

INSERT INTO nexmark_q14
SELECT
  auction,
  bidder,
  0.908 * price AS price,
  CASE
    WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
    WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  `dateTime`,
  extra,
  count_char(extra, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
