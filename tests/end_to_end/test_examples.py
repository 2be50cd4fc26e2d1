"""Every pipeline of `pipelines/` runs, and DuckDB computes the same rows from the same data."""

from __future__ import annotations

import collections
import csv
import datetime as dt
import json
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from flowrun.connectors.nexmark import SCHEMA
from flowrun.connectors.nexmark_events import EventConfig, NexmarkEvents
from tests.end_to_end.running import PIPELINES, SAMPLES, json_rows, run_file, written_files

EVENTS = 30_000
PARALLELISMS = (1, 2, 3)


def duck(query: str, **tables: pa.Table) -> list[dict[str, object]]:
    """The rows of a DuckDB query as JSON would show them."""
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    result = connection.sql(query).to_arrow_table()
    return result.to_pylist()


def same(rows: list[dict[str, object]], expected: list[dict[str, object]]) -> None:
    """Compare as multisets, numbers by value and times by their usual text."""

    def plain(value: object) -> str:
        text = str(value)
        return re.sub(r"(\.\d*?)0+$", r"\1", text).rstrip(".") if re.search(r"\d\.\d+$", text) else text

    def key(row: dict[str, object]) -> str:
        return json.dumps({k: None if v is None else plain(v) for k, v in row.items()}, sort_keys=True)

    assert collections.Counter(map(key, rows)) == collections.Counter(map(key, expected))


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_orders_per_minute(tmp_path: Path, parallelism: int) -> None:
    run_file(PIPELINES / "orders_per_minute.yaml", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=parallelism)
    expected = duck(
        f"""
        SELECT user_id, time_bucket(INTERVAL 1 minute, ts::TIMESTAMP) AS window_start,
               time_bucket(INTERVAL 1 minute, ts::TIMESTAMP) + INTERVAL 1 minute AS window_end,
               count(*) AS n, sum(amount::DECIMAL(10, 2)) AS revenue
        FROM read_json('{SAMPLES}/orders/*.json', format = 'newline_delimited') WHERE status = 'paid' GROUP BY ALL
        """
    )
    same(json_rows(tmp_path / "orders_per_minute"), expected)


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_word_count(tmp_path: Path, parallelism: int) -> None:
    run_file(PIPELINES / "word_count.yaml", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=parallelism)
    lines = [
        line for f in written_files(tmp_path / "word_count") for line in f.read_text(encoding="utf-8").splitlines()
    ]
    counted = {word: int(count) for word, count in csv.reader(lines)}
    text = " ".join(f.read_text(encoding="utf-8") for f in (SAMPLES / "text").iterdir())
    assert counted == collections.Counter(re.findall(r"\w+", text.lower()))


def test_click_sessions_and_their_late_output(tmp_path: Path) -> None:
    result = run_file(PIPELINES / "click_sessions.yaml", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=1)
    clicks = [json.loads(line) for line in (SAMPLES / "clicks" / "clicks.json").read_text().splitlines()]
    sessions, late = expected_sessions(clicks)
    got = json_rows(tmp_path / "click_sessions")
    assert collections.Counter((r["user_id"], r["window_start"], r["window_end"], r["clicks"]) for r in got) == sessions
    late_rows = json_rows(tmp_path / "late_clicks")
    assert collections.Counter((r["user_id"], r["ts"]) for r in late_rows) == late
    assert sum(late.values()) > 0, "the samples hold late clicks"
    assert result.accumulators["sessions"]["numLateRecordsDropped"] == sum(late.values())


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_card_testing(tmp_path: Path, parallelism: int) -> None:
    run_file(PIPELINES / "card_testing.yaml", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=parallelism)
    expected = duck(
        f"""
        WITH payments AS (
            SELECT user_id, order_id, amount::DOUBLE AS amount, ts::TIMESTAMP AS ts
            FROM read_json('{SAMPLES}/orders/*.json', format = 'newline_delimited')
            WHERE status = 'paid' AND amount IS NOT NULL
        )
        SELECT user_id, lag(order_id) OVER before AS tried, order_id, amount, ts FROM payments
        WINDOW before AS (PARTITION BY user_id ORDER BY ts, order_id)
        QUALIFY lag(amount) OVER before < 10 AND amount > 60 AND ts - lag(ts) OVER before <= INTERVAL 30 seconds
        """
    )
    assert len(expected) > 5, "the samples hold such payments"
    same(json_rows(tmp_path / "card_testing"), expected)
    assert json_rows(tmp_path / "late_payments") == []


def expected_sessions(
    clicks: list[dict[str, str]],
) -> tuple[collections.Counter[tuple[object, ...]], collections.Counter[tuple[object, ...]]]:
    """Sessions click by click, as Flink defines them: merge what touches, late if the merged window has been passed."""
    gap, delay = 20_000, 5_000
    open_windows: dict[str, list[list[int]]] = collections.defaultdict(list)
    fired: collections.Counter[tuple[object, ...]] = collections.Counter()
    late: collections.Counter[tuple[object, ...]] = collections.Counter()
    watermark, highest = -(2**63), -(2**63)

    def fire(up_to: int) -> None:
        for user, windows in open_windows.items():
            for window in [w for w in windows if w[1] - 1 <= up_to]:
                windows.remove(window)
                fired[(user, text_of(window[0]), text_of(window[1]), window[2])] += 1

    for click in clicks:
        user, ts = click["user_id"], millis_of(click["ts"])
        window = [ts, ts + gap, 1]
        merged = [w for w in open_windows[user] if w[0] <= window[1] and window[0] <= w[1]]
        whole = [
            min(w[0] for w in [window, *merged]),
            max(w[1] for w in [window, *merged]),
            sum(w[2] for w in [window, *merged]),
        ]
        if whole[1] - 1 <= watermark:
            late[(user, text_of(ts))] += 1
        else:
            for w in merged:
                open_windows[user].remove(w)
            open_windows[user].append(whole)
        highest = max(highest, ts)
        watermark = highest - delay - 1
        fire(watermark)
    fire(2**62)
    return fired, late


def millis_of(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp() * 1000)


def text_of(millis: int) -> str:
    """As JSON files show it: without trailing zeros of the fraction."""
    moment = dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
    return (moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{millis % 1000:03d}").rstrip("0").rstrip(".")


@pytest.fixture(scope="module")
def events() -> pa.Table:
    config = EventConfig(1, 10_000, 1_436_918_400_000, (1, 3, 46), (200, 500, 100), 2, 4, 4, 1)
    block = NexmarkEvents(config, 0).block(0, EVENTS)
    return pa.table([block.column(n) for n in SCHEMA.names], schema=SCHEMA.arrow)


NEXMARK = {
    "q0": "SELECT bid.auction, bid.bidder, bid.price, bid.dateTime, bid.extra FROM events WHERE event_type = 2",
    "q1": "SELECT bid.auction, bid.bidder, 0.908 * bid.price AS price, bid.dateTime, bid.extra FROM events WHERE event_type = 2",
    "q2": "SELECT bid.auction, bid.price FROM events WHERE event_type = 2 AND bid.auction % 123 = 0",
    "q5": """
        WITH bids AS (SELECT bid.auction AS auction, bid.dateTime AS t FROM events WHERE event_type = 2),
        hops AS (SELECT auction, time_bucket(INTERVAL 2 second, t) + INTERVAL 2 second * k AS window_end
                 FROM bids, range(1, 6) r(k)),
        counts AS (SELECT auction, window_end, count(*) AS num FROM hops GROUP BY ALL)
        SELECT auction, num FROM counts QUALIFY num = max(num) OVER (PARTITION BY window_end)""",
    "q7": """
        SELECT bid.auction, bid.price, bid.bidder, bid.dateTime, bid.extra FROM events WHERE event_type = 2
        QUALIFY bid.price = max(bid.price) OVER (PARTITION BY time_bucket(INTERVAL 10 second, bid.dateTime))""",
    "q8": """
        SELECT DISTINCT p.person.id AS id, p.person.name AS name,
               time_bucket(INTERVAL 10 second, p.person.dateTime) AS starttime
        FROM events p JOIN events a ON p.person.id = a.auction.seller
        AND time_bucket(INTERVAL 10 second, p.person.dateTime) = time_bucket(INTERVAL 10 second, a.auction.dateTime)
        WHERE p.event_type = 0 AND a.event_type = 1""",
}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("query", NEXMARK)
def test_nexmark(tmp_path: Path, events: pa.Table, query: str, parallelism: int) -> None:
    run_file(PIPELINES / "nexmark" / f"{query}.yaml", {"OUT": tmp_path, "EVENTS": EVENTS}, parallelism=parallelism)
    rows = json_rows(tmp_path / f"nexmark_{query}")
    expected = duck(NEXMARK[query], events=events)
    assert expected, "the query finds something in the sample"
    same(rows, expected)
