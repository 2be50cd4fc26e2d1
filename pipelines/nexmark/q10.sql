-- Nexmark q10: Bids into files partitioned by day and minute; a partition is marked with _SUCCESS once event time has passed it.

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

CREATE TABLE nexmark_q10 (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  `dateTime` TIMESTAMP(3),
  extra VARCHAR,
  dt STRING,
  hm STRING
) PARTITIONED BY (dt, hm) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT}',
  'sink.mode' = 'overwrite',
  'format' = 'csv',
  'sink.partition-commit.trigger' = 'partition-time',
  'sink.partition-commit.delay' = '1 min',
  'sink.partition-commit.policy.kind' = 'success-file',
  'partition.time-extractor.timestamp-pattern' = '$dt $hm:00',
  'sink.rolling-policy.rollover-interval' = '1min',
  'sink.rolling-policy.check-interval' = '1min'
);

INSERT INTO nexmark_q10
SELECT auction, bidder, price, `dateTime`, extra, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'), DATE_FORMAT(`dateTime`, 'HH:mm')
FROM bid;
