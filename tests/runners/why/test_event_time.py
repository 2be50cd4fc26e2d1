"""What holds event time back, and what waits for it: each once as the true cause, once not."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.connectors.memory import MemorySink
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.datastream import StreamExecutionEnvironment, TumblingEventTimeWindows
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.runners.why.finding import Severity, Thresholds
from tests.runners.why.jobs import ORDERS, PAYMENTS, Partitions, found_at_end, found_in, job_graph, one, order, payment

pytestmark = pytest.mark.exhaustive

MIDNIGHT = 1_709_251_200_000
SINK = "CREATE TABLE s (id BIGINT, n BIGINT) WITH ('connector' = 'blackhole');\n"
WINDOWS = (
    ORDERS
    + """
CREATE TABLE totals (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO totals SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
"""
)
AS_OF = (
    ORDERS
    + SINK
    + """
CREATE TABLE rates (user_id STRING, rate BIGINT, rts TIMESTAMP(3), PRIMARY KEY (user_id) NOT ENFORCED,
  WATERMARK FOR rts AS rts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen');
INSERT INTO s SELECT o.id, r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.user_id = r.user_id;
"""
)


def about(ms: int) -> object:
    """Watermarks are held back by a millisecond between rows."""
    return pytest.approx(ms, abs=1)


def rate(at: int) -> dict[str, object]:
    return {"user_id": "ann", "rate": 2, "rts": f"2024-03-01 00:{at // 60:02d}:{at % 60:02d}"}


def test_a_split_that_has_sent_nothing_is_named(tmp_path: Path) -> None:
    graph = job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 10), order(2, 300)]], "p1": [[]]}})
    found = found_in(graph, {"orders": 2})
    cause = one(found, "watermark_held_back")
    assert cause.severity is Severity.BLOCKS
    assert cause.title == "split 'p1' of source 'orders' holds event time back"
    assert cause.figures["behind_ms"] is None
    assert cause.figures["highest_watermark"] == about(MIDNIGHT + 295_000)
    assert "has sent no row" in cause.text
    assert "idle timeout" in str(cause.remedy)
    waits = one(found, "waits_for_event_time")
    assert waits.severity is Severity.BLOCKS
    assert "no watermark has come" in waits.text


def test_a_split_that_is_behind_is_named_with_how_much(tmp_path: Path) -> None:
    graph = job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 10), order(2, 300)]], "p1": [[order(3, 20)]]}})
    cause = one(found_in(graph, {"orders": 3}), "watermark_held_back")
    assert (cause.figures["split"], cause.figures["behind_ms"]) == ("p1", about(280_000))
    assert "the others have come 4 min" in cause.text


def test_splits_that_are_level_hold_nothing_back(tmp_path: Path) -> None:
    graph = job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 299)]], "p1": [[order(3, 300)]]}})
    assert "watermark_held_back" not in found_in(graph, {"orders": 2})


def test_a_split_that_nobody_waits_for_is_not_told_of(tmp_path: Path) -> None:
    text = ORDERS + SINK + "INSERT INTO s SELECT id, amount FROM orders;"
    graph = job_graph(tmp_path, text, {"orders": {"p0": [[order(1, 10)]], "p1": [[]]}})
    assert found_in(graph, {"s": 1}) == {}


def test_a_subtask_without_a_split_is_named(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 10), order(2, 300)]]}}
    found = found_in(job_graph(tmp_path, WINDOWS, sources, parallelism="2"), {"orders": 2})
    cause = one(found, "subtask_without_split")
    assert cause.severity is Severity.BLOCKS
    assert cause.figures["splits"] == 1
    assert "2 subtasks and 1 split" in cause.text
    assert "subtask_without_split" not in found_in(job_graph(tmp_path, WINDOWS, sources), {"orders": 2})


def test_a_source_that_has_read_nothing(tmp_path: Path) -> None:
    cause = one(found_in(job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[]]}}), {}), "no_input")
    assert cause.title == "source 'orders' has read nothing"
    assert "no_input" not in found_in(job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 1)]]}}), {"orders": 1})


def test_the_side_that_sends_no_more_rows_is_blamed_not_the_other(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 10), order(2, 600)]]}, "rates": {"q0": [[rate(1)]]}}
    found = found_in(job_graph(tmp_path, AS_OF, sources), {"orders": 2, "rates": 1})
    cause = one(found, "source_silent")
    assert cause.title == "event time stands still: source 'rates' sends no rows"
    assert cause.figures["watermark"] == about(MIDNIGHT - 4_000)
    assert "hold up the others" in str(cause.remedy)
    assert one(found, "waits_for_event_time").figures["due"] == MIDNIGHT + 10_000


def test_an_aggregate_before_and_behind_an_exchange_is_one_that_waits(tmp_path: Path) -> None:
    found = found_in(job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 1)]]}}), {"orders": 1})
    assert one(found, "source_silent").text.endswith("'totals.aggregate' waits for it to go on.")


def test_a_source_whose_rows_have_all_come_out_may_be_silent(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 10), order(2, 20)]]}, "rates": {"q0": [[rate(1), rate(100)]]}}
    sources["orders"]["p0"].append([order(3, 30)])
    found = found_in(job_graph(tmp_path, AS_OF, sources), {"orders": 3, "rates": 2})
    assert one(found, "source_silent").title == "event time stands still: source 'orders' sends no rows"


def test_a_source_without_a_watermark(tmp_path: Path) -> None:
    text = WINDOWS.replace("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", "WATERMARK FOR ts AS SOURCE_WATERMARK()")
    sources = {"orders": {"p0": [[order(1, 10), order(2, 300)]]}}
    cause = one(found_in(job_graph(tmp_path, text, sources), {"orders": 2}), "no_watermark")
    assert (cause.title, cause.severity) == ("source 'orders' has no watermark", Severity.BLOCKS)
    assert "no_watermark" not in found_in(job_graph(tmp_path, WINDOWS, sources), {"orders": 2})


def test_an_open_window_says_until_when_it_waits_and_how_much_is_missing(tmp_path: Path) -> None:
    graph = job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 70), order(2, 100)]]}})
    waits = one(found_in(graph, {"orders": 2}), "waits_for_event_time")
    assert waits.severity is Severity.BLOCKS
    start = MIDNIGHT + 60_000
    assert (waits.figures["window_start"], waits.figures["window_end"]) == (start, start + 60_000)
    assert waits.figures["missing_ms"] == about(start + 60_000 - 1 - (MIDNIGHT + 95_000))
    assert "window [2024-03-01 00:01:00, 2024-03-01 00:02:00)" in waits.text


def test_a_window_that_has_fired_before_is_only_told_of(tmp_path: Path) -> None:
    graph = job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 10), order(2, 100)]]}})
    assert one(found_in(graph, {"orders": 2, "totals": 1}), "waits_for_event_time").severity is Severity.INFORMS


def test_nothing_waits_after_the_end(tmp_path: Path) -> None:
    graph = job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 10), order(2, 100)]], "p1": [[]]}}, ends=True)
    assert found_at_end(graph) == {}


def test_windows_of_the_clock_wait_for_it(tmp_path: Path) -> None:
    text = """
    CREATE TABLE orders (id BIGINT, p AS PROCTIME()) WITH ('connector' = 'datagen');
    CREATE TABLE totals (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO totals SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(p), INTERVAL '1' DAY))
    GROUP BY window_start, window_end;
    """
    found = found_in(job_graph(tmp_path, text, {"orders": {"p0": [[{"id": 1}]]}}), {"totals.aggregate": 1})
    assert one(found, "waits_for_clock").severity is Severity.BLOCKS
    assert "waits_for_event_time" not in found


def test_a_side_that_is_still_catching_up(tmp_path: Path) -> None:
    text = (
        ORDERS
        + PAYMENTS
        + SINK
        + """
    INSERT INTO s SELECT o.id, p.paid FROM
     (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) o JOIN
     (SELECT * FROM TABLE(TUMBLE(TABLE payments, DESCRIPTOR(pts), INTERVAL '1' MINUTE))) p
     ON o.user_id = p.payer AND o.window_start = p.window_start AND o.window_end = p.window_end;
    """
    )
    sources = {"orders": {"p0": [[order(1, 10), order(2, 4000)]]}, "payments": {"q0": [[payment(1, 20)]]}}
    lately = Thresholds(silent_ms=600_000)
    cause = one(found_in(job_graph(tmp_path, text, sources), {"orders": 2, "payments": 1}, lately), "source_behind")
    assert (cause.figures["source"], cause.figures["behind_ms"]) == ("payments", about(3_980_000))
    assert cause.severity is Severity.SLOWS
    sources["payments"] = {"q0": [[payment(1, 20), payment(2, 4000)]]}
    assert "source_behind" not in found_in(job_graph(tmp_path, text, sources), {"orders": 2, "payments": 2}, lately)


def test_a_source_that_comes_to_its_end_without_a_row(tmp_path: Path) -> None:
    cause = one(found_at_end(job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[]]}}, ends=True)), "empty_source")
    assert cause.severity is Severity.BLOCKS
    assert cause.title == "source 'orders' came to its end without a row"
    assert found_at_end(job_graph(tmp_path, WINDOWS, {"orders": {"p0": [[order(1, 1)]]}}, ends=True)) == {}


@pytest.mark.parametrize(("users", "holds"), [(["ann"], True), ([f"u{i}" for i in range(40)], False)])
def test_a_subtask_that_gives_event_time_and_gets_no_rows(tmp_path: Path, users: list[str], holds: bool) -> None:
    env = StreamExecutionEnvironment("timed", parallelism=2)
    schema = Schema.of(id=BIGINT, user_id=STRING, amount=BIGINT, ts=timestamp(3))
    rows = [order(i, 10 + i, users[i % len(users)]) for i in range(200)]
    orders = env.from_source(Partitions(schema, {"p0": [rows]}), name="orders")
    timed = orders.key_by("user_id").assign_timestamps_and_watermarks(WatermarkStrategy.bounded(0), "ts", name="timed")
    sums = timed.key_by("user_id").window(TumblingEventTimeWindows.of(60_000)).sum("amount")
    sums.sink_to(MemorySink("sums", sums.schema))
    found = found_in(env.job_graph(), {"timed": 200})
    assert ("subtask_without_rows" in found) is holds
    if holds:
        cause = one(found, "subtask_without_rows")
        assert cause.figures["highest_watermark"] == about(MIDNIGHT + 209_000)
        assert "before they are dealt out by key" in str(cause.remedy)
