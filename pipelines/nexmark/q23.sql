-- Nexmark q23: Bids of persons who sell too, with the person and each auction.

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

CREATE VIEW person AS
SELECT
  person.id, person.name, person.emailAddress, person.creditCard, person.city, person.state,
  `dateTime`, person.extra
FROM events
WHERE event_type = 0;

CREATE VIEW auction AS
SELECT
  auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve,
  `dateTime`, auction.expires, auction.seller, auction.category, auction.extra
FROM events
WHERE event_type = 1;

CREATE VIEW bid AS
SELECT
  bid.auction, bid.bidder, bid.price, bid.channel, bid.url,
  `dateTime`, bid.extra
FROM events
WHERE event_type = 2;

CREATE TABLE nexmark_q23 (
  bidder BIGINT,
  price BIGINT,
  channel VARCHAR,
  url VARCHAR,
  bid_extra VARCHAR,
  person_id BIGINT,
  name VARCHAR,
  emailAddress VARCHAR,
  creditCard VARCHAR,
  city VARCHAR,
  state VARCHAR,
  person_extra VARCHAR,
  itemName VARCHAR,
  description VARCHAR,
  initialBid BIGINT,
  reserve BIGINT,
  auction_dateTime TIMESTAMP(3),
  expires TIMESTAMP(3),
  seller BIGINT,
  category BIGINT,
  auction_extra VARCHAR
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT}',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

INSERT INTO nexmark_q23
SELECT
  bidder, price, channel, url, B.extra AS bid_extra,
  P.id AS person_id, name, emailAddress, creditCard, city, state, P.extra AS person_extra,
  itemName, description, initialBid, reserve, A.`dateTime` AS auction_dateTime, expires, seller, category,
  A.extra AS auction_extra
FROM bid B
JOIN person P ON P.id = B.bidder
JOIN auction A ON A.seller = B.bidder;
