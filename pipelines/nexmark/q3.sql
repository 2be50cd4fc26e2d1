-- Nexmark q3: Who sells in category 10 in Oregon, Idaho and California.

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

CREATE TABLE nexmark_q3 (
  name VARCHAR,
  city VARCHAR,
  state VARCHAR,
  id BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT}',
  'sink.mode' = 'overwrite',
  'format' = 'json'
);

INSERT INTO nexmark_q3
SELECT P.name, P.city, P.state, A.id
FROM auction AS A
INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');
