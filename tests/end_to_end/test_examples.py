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
from flowrun.runners.embedded import run_embedded
from flowrun.runners.program import RunningExecutor, run_program
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
    assert result.accumulators["sessions"]["numLateRecordsSideOutput"] == sum(late.values())


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


ORDERS = f"read_json('{SAMPLES}/orders/*.json', format = 'newline_delimited')"


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_orders_per_minute_in_sql_prints_its_rows(capsys: pytest.CaptureFixture[str], parallelism: int) -> None:
    run_file(PIPELINES / "orders_per_minute.sql", {"SAMPLES": SAMPLES}, parallelism=parallelism)
    expected = duck(
        f"""
        SELECT time_bucket(INTERVAL 1 minute, ts::TIMESTAMP) AS minute, count(*) AS orders,
               sum(amount::DECIMAL(10, 2)) AS revenue, count(DISTINCT user_id) AS users
        FROM {ORDERS} WHERE status = 'paid' GROUP BY ALL
        """
    )
    lines = [f"+I[{r['minute']}.000, {r['orders']}, {r['revenue']}, {r['users']}]" for r in expected]
    assert sorted(line.partition("> ")[2] or line for line in capsys.readouterr().out.splitlines()) == sorted(lines)


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_orders_in_dollars(tmp_path: Path, parallelism: int) -> None:
    run_file(PIPELINES / "orders_in_dollars.sql", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=parallelism)
    expected = duck(
        f"""
        SELECT order_id, user_id, (amount::DECIMAL(10, 2) * usd::DECIMAL(10, 6))::DECIMAL(10, 2) AS amount_usd,
               o.ts::TIMESTAMP AS ts
        FROM {ORDERS} AS o
        ASOF JOIN read_json('{SAMPLES}/rates/*.json', format = 'newline_delimited') AS r
        ON o.currency = r.currency AND r.ts::TIMESTAMP <= o.ts::TIMESTAMP
        WHERE status = 'paid'
        """
    )
    same(json_rows(tmp_path / "orders_in_dollars"), expected)


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_top_products_are_the_newest_rows_only(tmp_path: Path, parallelism: int) -> None:
    run_file(PIPELINES / "top_products.sql", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=parallelism)
    expected = duck(
        f"""
        SELECT currency, row_number() OVER (PARTITION BY currency ORDER BY revenue DESC, product) AS place, product, revenue
        FROM (SELECT currency, product, sum(amount::DECIMAL(10, 2)) AS revenue FROM {ORDERS} WHERE status = 'paid' GROUP BY ALL)
        QUALIFY place <= 3
        """
    )
    same(json_rows(tmp_path / "top_products"), expected)


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_card_testing_as_a_pattern_finds_what_the_process_function_finds(tmp_path: Path, parallelism: int) -> None:
    variables = {"OUT": tmp_path, "SAMPLES": SAMPLES}
    run_file(PIPELINES / "card_testing.yaml", variables, parallelism=parallelism)
    run_file(PIPELINES / "card_testing.sql", variables, parallelism=parallelism)
    found = json_rows(tmp_path / "card_testing_sql")
    assert found
    same(found, json_rows(tmp_path / "card_testing"))


def test_word_count_in_sql_ends_with_the_ten_most_frequent(capsys: pytest.CaptureFixture[str]) -> None:
    run_file(PIPELINES / "word_count.sql", {"SAMPLES": SAMPLES}, parallelism=1)
    shown: collections.Counter[str] = collections.Counter()
    for line in capsys.readouterr().out.splitlines():
        shown[line[2:]] += 1 if line[:2] in ("+I", "+U") else -1
    text = " ".join(f.read_text(encoding="utf-8") for f in (SAMPLES / "text").iterdir())
    counts = collections.Counter(re.findall(r"\w+", text.lower()))
    first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
    assert +shown == collections.Counter(f"[{word}, {n}]" for word, n in first)


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_clicks_before_orders(tmp_path: Path, parallelism: int) -> None:
    result = run_file(
        PIPELINES / "clicks_before_orders.sql", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=parallelism
    )
    expected = duck(
        f"""
        SELECT o.order_id, c.url, c.device.os AS os, c.ts::TIMESTAMP AS clicked_at, o.ts::TIMESTAMP AS ordered_at
        FROM {ORDERS} AS o
        JOIN read_json('{SAMPLES}/clicks/*.json', format = 'newline_delimited') AS c
        ON o.user_id = c.user_id
        AND c.ts::TIMESTAMP BETWEEN o.ts::TIMESTAMP - INTERVAL 10 seconds AND o.ts::TIMESTAMP
        """
    )
    files = written_files(tmp_path / "seen_before_orders")
    lines = [line for f in files for line in csv.reader(f.read_text(encoding="utf-8").splitlines())]
    names = ("order_id", "url", "os", "clicked_at", "ordered_at")
    late = late_times("clicks/clicks.json")  # of these it is a matter of speed whether they still meet an order
    in_time = [r for r in expected if r["clicked_at"] not in late]
    assert len(in_time) < len(expected), "the samples hold late clicks"
    found: list[dict[str, object]] = [dict(zip(names, line, strict=True)) for line in lines]
    same([r for r in found if dt.datetime.fromisoformat(str(r["clicked_at"])) not in late], in_time)
    per_minute = json_rows(tmp_path / "orders_a_minute")
    assert sum(int(str(r["orders"])) for r in per_minute) == 1800
    assert result.accumulators["Source: orders"]["numRecordsOut"] == 1800, "the orders are read once for both results"


def late_times(file: str) -> set[dt.datetime]:
    """Event times of rows that come more than 5 s after a newer one."""
    highest, late = dt.datetime.min, set()
    for line in (SAMPLES / file).read_text(encoding="utf-8").splitlines():
        ts = dt.datetime.fromisoformat(json.loads(line)["ts"])
        highest = max(highest, ts)
        if ts <= highest - dt.timedelta(seconds=5):
            late.add(ts)
    return late


def test_every_example_has_a_test() -> None:
    with_servers = PIPELINES.parent / "tests" / "connectors" / "examples"
    text = "".join(p.read_text(encoding="utf-8") for p in (Path(__file__), *with_servers.glob("test_*.py")))
    assert [f.name for f in PIPELINES.glob("*.*") if f.suffix in (".yaml", ".sql") and f'"{f.name}"' not in text] == []


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


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_best_customers(tmp_path: Path, parallelism: int) -> None:
    run_file(PIPELINES / "best_customers.yaml", {"OUT": tmp_path, "SAMPLES": SAMPLES}, parallelism=parallelism)
    orders, clicks = (
        f"read_json('{SAMPLES}/{name}/*.json', format = 'newline_delimited')" for name in ("orders", "clicks")
    )
    paid = f"(SELECT * REPLACE (amount::DECIMAL(10, 2) AS amount) FROM {orders} WHERE status = 'paid' AND amount IS NOT NULL)"
    spending = f"SELECT user_id, count(*) AS orders, sum(amount) AS spent FROM {paid} WHERE user_id IS NOT NULL GROUP BY user_id"
    best = f"SELECT *, row_number() OVER (ORDER BY spent DESC, user_id) AS place FROM ({spending}) QUALIFY place <= 5"
    same(left_of(json_rows(tmp_path / "best_customers")), duck(best))
    prompted = f"""
        SELECT order_id, unnest(tags) AS tag, amount FROM {paid} AS o JOIN {clicks} AS c
        ON o.user_id = c.user_id AND c.ts::TIMESTAMP BETWEEN o.ts::TIMESTAMP - INTERVAL 30 seconds AND o.ts::TIMESTAMP
    """
    tags = f"SELECT tag, count(DISTINCT order_id) AS orders, max(amount) AS largest FROM ({prompted}) GROUP BY tag"
    same(json_rows(tmp_path / "click_tags"), duck(tags))


def left_of(changes: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows that are left of changes in the Debezium envelope."""
    left: collections.Counter[str] = collections.Counter()
    for change in changes:
        for side, count in (("before", -1), ("after", 1)):
            if change[side] is not None:
                left[json.dumps(change[side])] += count
    assert min(left.values()) >= 0
    return [json.loads(row) for row in left.elements()]


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_user_totals(tmp_path: Path, parallelism: int) -> None:
    executor = RunningExecutor(
        PIPELINES / "user_totals.py",
        {"OUT": str(tmp_path), "SAMPLES": str(SAMPLES)},
        {"settings.parallelism": str(parallelism)},
        lambda compiled: run_embedded(compiled.job_graph),
    )
    run_program(PIPELINES / "user_totals.py", executor)
    expected = duck(
        f"""
        SELECT user_id, round(sum(amount::DOUBLE), 6) AS amount FROM read_json('{SAMPLES}/orders/*.json', format = 'newline_delimited')
        WHERE status = 'paid' GROUP BY ALL
        """
    )
    rows = json_rows(tmp_path / "user_totals")
    totals = {row["user_id"]: 0.0 for row in rows}
    for row in rows:
        totals[row["user_id"]] = max(totals[row["user_id"]], round(float(str(row["amount"])), 6))
    same([{"user_id": user, "amount": amount} for user, amount in totals.items()], expected)
