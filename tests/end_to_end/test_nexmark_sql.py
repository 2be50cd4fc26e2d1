"""The Nexmark queries in SQL: what they write, folded, is what DuckDB computes from the same events."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.end_to_end.running import PIPELINES, json_rows, run_file, run_text, written_files

NEXMARK = PIPELINES / "nexmark"
WON = """
    SELECT a.id, a.category, a.seller, b.auction, b.bidder, b.price, b.dateTime AS at,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
"""
COUNTS = (
    "COUNT(*), COUNT(DISTINCT bidder), COUNT(DISTINCT bidder) FILTER (WHERE price < 10000), COUNT(DISTINCT auction)"
)
# columns that are compared, and the same query of DuckDB
EXPECTED = {
    0: ("auction, bidder, price, extra", "SELECT auction, bidder, price, extra FROM bid"),
    2: ("auction, price", "SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    3: (
        "name, city, state, id",
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    ),
    4: (
        "category, avg",
        f"SELECT category, CAST(FLOOR(AVG(price)) AS BIGINT) FROM ({WON}) WHERE place = 1 GROUP BY category",
    ),
    9: ("id, bidder, price, seller", f"SELECT id, bidder, price, seller FROM ({WON}) WHERE place = 1"),
    15: ("day, total_bids, total_bidders, rank1_bidders, total_auctions", f"SELECT '2015-07-15', {COUNTS} FROM bid"),
    16: (
        "channel, total_bids, total_bidders, rank1_bidders, total_auctions",
        f"SELECT channel, {COUNTS} FROM bid GROUP BY channel",
    ),
    17: (
        "auction, total_bids, min_price, max_price, sum_price",
        "SELECT auction, COUNT(*), MIN(price), MAX(price), SUM(price)::BIGINT FROM bid GROUP BY auction",
    ),
    19: (
        "auction, price, rank_number",
        "SELECT auction, price, place FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid) "
        "WHERE place <= 10",
    ),
    20: (
        "auction, bidder, price, seller",
        "SELECT auction, bidder, price, seller FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10",
    ),
    22: ("auction, dir1", "SELECT auction, SPLIT_PART(url, '/', 4) FROM bid"),
    23: (
        "bidder, price, name, itemName",
        "SELECT bidder, price, name, itemName FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder",
    ),
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    run_text(
        folder,
        f"""
        sources:
          events: {{connector: nexmark, events.num: 3000, first-event.rate: 100, next-event.rate: 100, out-of-order.group-size: 20}}
        sinks:
          out: {{from: events, connector: filesystem, path: {folder / "out"}, format: json}}
        """,
    )
    return folder / "out"


@pytest.fixture(scope="module")
def tables(events: Path) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute(f"CREATE TABLE events AS SELECT * FROM read_json('{events}/*.json', format = 'newline_delimited')")
    for kind, name in enumerate(("person", "auction", "bid")):
        database.execute(f"CREATE TABLE {name} AS SELECT {name}.* FROM events WHERE event_type = {kind}")
    return database


def folded(folder: Path, columns: str) -> Counter[str]:
    """What the files say is in the table now; nothing is taken back that was not there."""
    rows: Counter[str] = Counter()
    for line in json_rows(folder):
        for row, weight in ((line["after"], 1), (line["before"], -1)) if "op" in line else ((line, 1),):
            if row is not None:
                assert isinstance(row, dict)
                rows[json.dumps([row[c] for c in columns.split(", ")])] += weight
    assert not [r for r, n in rows.items() if n < 0]
    return +rows


def run(number: int, events: Path, out: Path, tmp_path: Path, **settings: object) -> None:
    variables: dict[str, object] = {"EVENTS": events, "OUT": out}
    if number == 13:
        (tmp_path / "side.csv").write_text("".join(f"{i},value-{i}\n" for i in range(10_000)))
        variables["SIDE_INPUT"] = tmp_path / "side.csv"
    run_file(NEXMARK / f"q{number}.sql", variables, **settings)


@pytest.mark.parametrize("number", range(24))
def test_every_query_runs(number: int, events: Path, tmp_path: Path) -> None:
    run(number, events, tmp_path / "out", tmp_path)
    assert written_files(tmp_path / "out")


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("number", list(EXPECTED))
def test_results_are_those_of_duckdb(
    number: int, parallelism: int, events: Path, tables: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    columns, query = EXPECTED[number]
    run(number, events, tmp_path / "out", tmp_path, parallelism=parallelism)
    wanted = Counter(json.dumps(list(row)) for row in tables.execute(query).fetchall())
    assert folded(tmp_path / "out", columns) == wanted


def test_partitions_of_minutes_are_marked(events: Path, tmp_path: Path) -> None:
    run(10, events, tmp_path / "out", tmp_path)
    marks = sorted(p.parent.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("_SUCCESS"))
    assert marks == ["dt=2015-07-15/hm=00%3A00"]
