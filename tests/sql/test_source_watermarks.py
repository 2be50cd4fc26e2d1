"""`WATERMARK FOR ts AS SOURCE_WATERMARK()` in whole scripts: which rows count, at any parallelism and batch size, over a stop."""

from __future__ import annotations

import datetime as dt
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from flowrun.connectors import memory
from flowrun.core.elements import MIN_TIMESTAMP, Watermark
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, run_embedded, start_embedded
from flowrun.runtime.lifecycle import JobState
from tests.end_to_end.running import json_rows, run_file, run_text
from tests.examples import examples

EPOCH = dt.datetime(1970, 1, 1)
TIMEOUT_MS = 60_000
WINDOW_END_MS = (dt.datetime(2015, 7, 15, 0, 0, 0, 300_000) - EPOCH) // dt.timedelta(milliseconds=1)
# One partition is read by one subtask: beside others, which have nothing to read, event time would wait for these to end.
WINDOWS = """
CREATE TABLE t (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK())
WITH ('connector' = 'memory', 'table' = 't', 'scan.parallelism' = '1');
CREATE TABLE o (w TIMESTAMP(3), k STRING, n BIGINT) WITH ('connector' = 'memory', 'table' = 'o');
INSERT INTO o SELECT window_start, k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.010' SECOND))
GROUP BY window_start, window_end, k;
"""
YAML = """
sources:
  t: {connector: memory, table: t, parallelism: 1, schema: {k: STRING, ts: TIMESTAMP(3)}, watermark: {column: ts, type: source}}
steps:
  s: {from: t, key_by: k, window: {type: tumbling, size: 10ms}, aggregate: [COUNT(*) AS n]}
  r: {from: s, select: [window_start AS w, k, n]}
sinks:
  o: {from: r, connector: memory, table: o}
"""
NEXMARK = """
CREATE TABLE events (
  event_type INT, person ROW<id BIGINT, `dateTime` TIMESTAMP(3)>, auction ROW<id BIGINT, `dateTime` TIMESTAMP(3)>,
  bid ROW<price BIGINT, `dateTime` TIMESTAMP(3)>,
  ts AS CASE event_type WHEN 0 THEN person.`dateTime` WHEN 1 THEN auction.`dateTime` ELSE bid.`dateTime` END,
  WATERMARK FOR ts AS {watermark}
) WITH ('connector' = 'nexmark', 'events.num' = '{number}', 'first-event.rate' = '{rate}', 'next-event.rate' = '{rate}',
  'rate.limited' = '{limited}', 'out-of-order.group-size' = '7');
CREATE TABLE o (w TIMESTAMP(3), kind INT, n BIGINT, price BIGINT) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json');
INSERT INTO o SELECT window_start, event_type, COUNT(*), SUM(bid.price)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.3' SECOND)) GROUP BY window_start, window_end, event_type;
"""

_rows = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=6)
_elements = st.lists(st.one_of(_rows, _rows, st.integers(0, 60).map(Watermark)), max_size=10)


@pytest.fixture(autouse=True)
def _no_tables() -> Iterator[None]:
    yield
    memory.clear()


def moment(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


def put(elements: list[Any]) -> None:
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("ms"))])
    batches = (
        e if isinstance(e, Watermark) else pa.RecordBatch.from_pylist([{"k": k, "ts": moment(t)} for k, t in e], schema)
        for e in elements
    )
    memory.put("t", list(batches))


def took() -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for batch in memory.take("o") for row in batch.columns.to_pylist())


def one_by_one(elements: list[Any], *, late: bool = True) -> Counter[tuple[Any, ...]]:
    """Rows of the windows; a row is left out if the watermark before it has passed its window's last moment."""
    seen = MIN_TIMESTAMP
    counts: Counter[tuple[int, str]] = Counter()
    for element in elements:
        if isinstance(element, Watermark):
            seen = max(seen, element.timestamp)
            continue
        for key, time in element:
            start = time // 10 * 10
            if not late or start + 9 > seen:
                counts[start, key] += 1
    return Counter((moment(start), key, n) for (start, key), n in counts.items())


LATE = [
    [("a", 5), ("b", 12)], Watermark(8), [("a", 3)], Watermark(9), [("a", 4), ("b", 9), ("b", 10), ("a", 25)], Watermark(4), Watermark(19),
    [("a", 19), ("b", 20), ("b", 11)], Watermark(40), [("a", 39), ("a", 40), ("a", 41)],
]  # fmt: skip


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("batch_rows", [1, 7, 100_000])
def test_rows_behind_the_watermark_of_their_source_are_late(parallelism: int, batch_rows: int, tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text(WINDOWS)
    put(LATE)
    run_file(script, parallelism=parallelism, batch_rows=batch_rows)
    expected = one_by_one(LATE)
    assert took() == expected
    assert expected != one_by_one(LATE, late=False)
    run_text(tmp_path, YAML, parallelism=parallelism, batch_rows=batch_rows)
    assert took() == expected


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(elements=_elements, batch_rows=st.sampled_from([1, 2, 100_000]), parallelism=st.sampled_from([1, 2]))
def test_windows_hold_the_rows_that_one_row_at_a_time_gives(
    elements: list[Any], batch_rows: int, parallelism: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path_factory.mktemp("s") / "s.sql"
    script.write_text(WINDOWS)
    put(elements)
    run_file(script, parallelism=parallelism, batch_rows=batch_rows)
    assert took() == one_by_one(elements)


def nexmark(folder: Path, watermark: str, number: int = 5000, rate: int = 500, limited: str = "false") -> Path:
    script = folder / "s.sql"
    script.write_text(
        NEXMARK.format(watermark=watermark, folder=folder / "out", number=number, rate=rate, limited=limited)
    )
    return script


def bag(folder: Path) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in json_rows(folder))


@pytest.mark.exhaustive
def test_nexmark_gives_what_a_long_enough_delay_gives(tmp_path: Path) -> None:
    runs = [
        ("ts - INTERVAL '1' MINUTE", 1, 100_000),
        *(("SOURCE_WATERMARK()", p, b) for p in (1, 2) for b in (1, 7, 100_000)),
    ]
    found = []
    for number, (watermark, parallelism, batch_rows) in enumerate(runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        run_file(nexmark(folder, watermark, 600), parallelism=parallelism, batch_rows=batch_rows)
        found.append(bag(folder / "out"))
    assert len(found[0]) > 10
    assert all(rows == found[0] for rows in found)


def test_a_run_that_goes_on_from_a_savepoint_at_another_parallelism_gives_the_rest(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    for folder in (whole, halves):
        folder.mkdir()
    run_file(nexmark(whole, "SOURCE_WATERMARK()", 1200, 20))
    settings = {"settings.checkpoint.interval": "1h", "settings.checkpoint.dir": str(halves / "state")}
    script = nexmark(halves, "SOURCE_WATERMARK()", 1200, 20, "true")  # a minute, if nobody stops it
    graph = compile_pipeline(script, {}, {**settings, "settings.parallelism": "2"}).job_graph
    with start_embedded(graph, state=JobStateOptions(directory=str(halves / "state"))) as job:
        while all(v.watermark is None or v.watermark < WINDOW_END_MS for v in job.status().vertices):
            assert job.wait(5) is None
        ticket = job.take_snapshot(str(halves / "savepoints"), savepoint=True, stop=True)
        savepoint = ticket.wait(TIMEOUT_MS)
        job.wait(TIMEOUT_MS)
    before = sum(bag(halves / "out").values())
    script = nexmark(halves, "SOURCE_WATERMARK()", 1200, 20)
    graph = compile_pipeline(script, {}, {**settings, "settings.parallelism": "1"}).job_graph
    result = run_embedded(graph, state=JobStateOptions(directory=str(halves / "state"), restore_from=savepoint))
    assert result.state is JobState.FINISHED
    assert bag(halves / "out") == bag(whole / "out")
    assert before < sum(bag(whole / "out").values())


def test_datagen_sends_watermarks_while_it_runs(tmp_path: Path) -> None:
    script = tmp_path / "s.sql"
    script.write_text(
        textwrap.dedent("""
        CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK())
        WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'fields.ts.max-past' = '20ms');
        CREATE TABLE o (w TIMESTAMP(3), n BIGINT) WITH ('connector' = 'memory', 'table' = 'o');
        INSERT INTO o SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.010' SECOND))
        GROUP BY window_start, window_end;
        """)
    )
    with start_embedded(compile_pipeline(script, {}, {"settings.parallelism": "1"}).job_graph) as job:
        while sum(found := took_rows(), 0) < 200:
            assert job.wait(5) is None
        job.cancel()
    assert found


def took_rows() -> list[int]:
    with memory._lock:
        return [row["n"] for b in memory._outputs.get("o", []) for row in b.rows.columns.to_pylist()]
