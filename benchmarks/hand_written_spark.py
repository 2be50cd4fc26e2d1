"""Nexmark queries as somebody would write them for Spark by hand: the peer of flowrun's translation. Run as a process of its own.

    python -m benchmarks.hand_written_spark q4 EVENTS.parquet OUTPUT_FOLDER

writes JSON and prints `{"start": seconds, "run": seconds}`.
"""

from __future__ import annotations

import json
import sys
import time

VIEWS = """
CREATE TEMPORARY VIEW person AS SELECT person.* FROM events WHERE event_type = 0;
CREATE TEMPORARY VIEW auction AS SELECT auction.* FROM events WHERE event_type = 1;
CREATE TEMPORARY VIEW bid AS SELECT bid.* FROM events WHERE event_type = 2
"""
_RANKS = """
  count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids
"""
_BIDS_PER_WINDOW = (
    "SELECT auction, window, count(*) AS num FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')"
)
QUERIES = {
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """
        SELECT category, avg(final) AS avg FROM (
          SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b
          ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
          GROUP BY a.id, a.category)
        GROUP BY category""",
    "q5": f"""
        SELECT auction, num FROM (
          SELECT *, max(num) OVER (PARTITION BY window) AS maxn FROM ({_BIDS_PER_WINDOW}))
        WHERE num >= maxn""",
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra FROM bid b JOIN (
          SELECT max(price) AS maxprice, window.end AS dateTime FROM bid GROUP BY window(dateTime, '10 seconds')) m
        ON b.price = m.maxprice AND b.dateTime BETWEEN m.dateTime - INTERVAL 10 SECONDS AND m.dateTime""",
    "q8": """
        SELECT p.id, p.name, p.window.start AS starttime FROM
          (SELECT DISTINCT id, name, window(dateTime, '10 seconds') AS window FROM person) p JOIN
          (SELECT DISTINCT seller, window(dateTime, '10 seconds') AS window FROM auction) a
        ON p.id = a.seller AND p.window = a.window""",
    "q9": """
        SELECT * EXCEPT (rownum) FROM (
          SELECT a.*, b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
            row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rownum
          FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires)
        WHERE rownum = 1""",
    "q15": f"""
        SELECT date_format(dateTime, 'yyyy-MM-dd') AS day, {_RANKS},
          count(DISTINCT bidder) AS total_bidders,
          count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
          count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
          count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
          count(DISTINCT auction) AS total_auctions,
          count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
          count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
          count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
        FROM bid GROUP BY date_format(dateTime, 'yyyy-MM-dd')""",
    "q17": f"""
        SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, {_RANKS},
          min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd')""",
    "q18": """
        SELECT * EXCEPT (rank_number) FROM (
          SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number FROM bid)
        WHERE rank_number = 1""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
          a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires, a.seller, a.category,
          a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
}


def main(query: str, events: str, out: str) -> None:
    from pyspark.sql import SparkSession

    began = time.perf_counter()
    builder = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    )
    session = (
        builder.config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    started = time.perf_counter()
    session.read.parquet(events).createOrReplaceTempView("events")
    for view in VIEWS.split(";"):
        session.sql(view)
    session.sql(QUERIES[query]).write.mode("overwrite").json(out)
    print(json.dumps({"start": started - began, "run": time.perf_counter() - started}))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
