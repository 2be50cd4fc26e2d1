-- Nexmark q7: The highest bids of each ten seconds.

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

CREATE TABLE nexmark_q7 (
  auction BIGINT,
  price BIGINT,
  bidder BIGINT,
  `dateTime` TIMESTAMP(3),
  extra VARCHAR
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT}',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

INSERT INTO nexmark_q7
SELECT B.auction, B.price, B.bidder, B.`dateTime`, B.extra
FROM bid B
JOIN (
  SELECT MAX(price) AS maxprice, window_end AS `dateTime`
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) B1
ON B.price = B1.maxprice
WHERE B.`dateTime` BETWEEN B1.`dateTime` - INTERVAL '10' SECOND AND B1.`dateTime`;
