from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullOrder, RankFunction, SortKey, TimeDomain
from flowrun.core.types import BIGINT, DOUBLE, STRING, timestamp
from flowrun.errors import InternalError
from flowrun.operators.ranking import row_runs, window_rank
from flowrun.operators.ranking.factories import WindowRankFactory
from flowrun.operators.ranking.window_rank import PROCESSING_TIME_GRACE_MS
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.ranking.oracles import SCHEMA, Row, columns, ranked, some_order, some_row
from tests.operators.stored import stored, taken

WINDOWED = Schema((*SCHEMA.fields, Field("window_start", timestamp(3)), Field("window_end", timestamp(3))))
COUNTS = Schema.of(item=STRING, n=BIGINT, x=STRING, y=DOUBLE, window_start=timestamp(3), window_end=timestamp(3))
SIZE = 10


def window_top(schema: Schema = WINDOWED, **options: Any) -> WindowRankFactory:
    numbered = options.setdefault("rank_column", True)
    options.setdefault("partition", (0,))
    options.setdefault("order", (SortKey(1, descending=True, nulls=NullOrder.LAST),))
    options.setdefault("ranking", RankFunction.ROW_NUMBER)
    options.setdefault("first", 1)
    output = Schema((*schema.fields, Field("rn", BIGINT))) if numbered else schema
    return WindowRankFactory(input_schema=schema, output_schema=output, window=(4, 5), **options)


def in_window(row: Row, end: int) -> Row:
    return (*row[:4], end - SIZE, end)


def plain(rows: Sequence[Row]) -> list[Row]:
    """Window bounds as ms."""
    return [tuple(v.value // 10**6 if hasattr(v, "value") else _ms(v) for v in row) for row in rows]


def _ms(value: Any) -> Any:
    import datetime as dt

    if isinstance(value, dt.datetime):
        return round(value.replace(tzinfo=dt.UTC).timestamp() * 1000)
    return value


@examples(30)
@given(st.integers(0, 2**32))
def test_each_window_gives_its_top_rows_once_when_it_closes(seed: int) -> None:
    dice = random.Random(seed)
    first = dice.choice([1, 1, 2])
    partition = dice.choice([(0,), (), (0, 5), (4, 5)])
    factory = window_top(
        partition=partition,
        order=some_order(dice),
        ranking=dice.choice(list(RankFunction)),
        first=first,
        last=first + dice.choice([0, 2, 5]),
        rank_column=dice.random() < 0.7,
    )
    harness = OperatorHarness(factory, schema=WINDOWED)
    open_windows: dict[int, list[Row]] = defaultdict(list)
    watermark = late = lost = 0
    for step in range(12):
        rows = []
        for _ in range(dice.choice([1, 5, 40])):
            row = in_window(some_row(dice, 5), SIZE * dice.randrange(1, 8))
            rows.append(row)
            if row[5] - 1 > watermark:
                open_windows[row[5]].append(row)
            else:
                late += 1
        harness.push(columns(rows, WINDOWED))
        harness.clear()
        watermark += dice.randrange(1, 12) if step < 11 else MAX_TIMESTAMP - watermark
        harness.watermark(watermark)
        expected: list[Row] = []
        for end in sorted(e for e in open_windows if e - 1 <= watermark):
            parts: dict[Any, list[Row]] = defaultdict(list)
            arrivals = open_windows.pop(end)
            for row in arrivals:
                parts[row[0] if 0 in partition else None].append(row)
            contents = [ranked(part, factory.order, factory.ranking) for part in parts.values()]
            for content in sorted(contents, key=lambda c: next(i for i, r in enumerate(arrivals) if r is c[0][1])):
                for rank, row in content:
                    if factory.first <= rank <= factory.last:
                        expected.append((*row, rank) if factory.rank_column else row)
        assert plain(harness.rows()) == expected
        assert harness.timestamps() == [row[5] - 1 for row in expected]
        if dice.random() < 0.3 and step < 11:
            lost += harness.metrics.count("numLateRecordsDropped")
            recipe = pickle.loads(pickle.dumps(factory))
            harness = OperatorHarness.restore(recipe, [stored(taken(harness), seed)], schema=WINDOWED)
            harness.watermark(watermark)
    assert harness.metrics.count("numLateRecordsDropped") + lost == late


def test_an_open_window_is_thinned_out_and_its_ties_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_rank, "_THIN_FROM", 16)
    monkeypatch.setattr(row_runs, "_LITTLE", 2)
    factory = window_top(COUNTS, last=2)
    harness = OperatorHarness(factory, schema=COUNTS)
    for i in range(100):
        harness.push(columns([in_window((f"i{i % 3}", i % 5, f"{i}", 0.0), SIZE)], COUNTS))
    assert harness.snapshot().keyed["rows"].num_rows < 40
    harness.watermark(SIZE)
    assert [(r[0], r[1], r[2]) for r in harness.rows()] == [
        ("i1", 4, "4"), ("i1", 4, "19"), ("i0", 4, "9"), ("i0", 4, "24"), ("i2", 4, "14"), ("i2", 4, "29"),
    ]  # fmt: skip


def test_windows_go_on_at_another_parallelism() -> None:
    factory = window_top(COUNTS, last=1)
    options: dict[str, Any] = {"schema": COUNTS, "state_keys": [factory.keys]}
    rows = [in_window((f"i{i % 20}", i, "", 0.0), SIZE * (1 + i % 4)) for i in range(200)]
    subtasks = [OperatorHarness(factory, subtask=i, parallelism=2, **options) for i in range(2)]
    for harness in subtasks:
        harness.push(columns(rows, COUNTS))
    snapshots = [stored(taken(h)) for h in subtasks]
    found = []
    for i in range(3):
        harness = OperatorHarness.restore(factory, snapshots, subtask=i, parallelism=3, **options)
        harness.watermark(MAX_TIMESTAMP)
        found += [(r[0], r[1]) for r in harness.rows()]
    assert sorted(found) == sorted((f"i{i % 20}", i) for i in range(180, 200))


def test_a_checkpoint_writes_a_row_once() -> None:
    harness = OperatorHarness(window_top(COUNTS, last=9), schema=COUNTS)
    harness.push(columns([in_window(("a", i, "", 0.0), SIZE) for i in range(3000)], COUNTS))
    first = taken(harness, 1).segmented["rows"].segments
    harness.push(columns([in_window(("a", 1, "", 0.0), 2 * SIZE)], COUNTS))
    second = taken(harness, 2).segmented["rows"].segments
    assert second[0] is first[0]
    assert [s.rows().num_rows for s in second] == [3000, 1]


def test_in_processing_time_a_window_waits_for_results_that_are_sent_when_it_is_over() -> None:
    factory = window_top(COUNTS, last=1, partition=(4, 5), domain=TimeDomain.PROCESSING)
    harness = OperatorHarness(factory, schema=COUNTS)
    harness.advance_processing_time(SIZE)
    harness.push(columns([in_window(("a", 1, "", 0.0), SIZE)], COUNTS))
    harness.push(columns([in_window(("b", 2, "", 0.0), SIZE)], COUNTS))
    harness.advance_processing_time(PROCESSING_TIME_GRACE_MS - 1)
    assert harness.rows() == []
    harness = OperatorHarness.restore(factory, [harness.snapshot()], schema=COUNTS, clock=harness.clock)
    harness.advance_processing_time(1)
    assert [r[0] for r in harness.rows()] == ["b"]
    harness.push(columns([in_window(("c", 3, "", 0.0), SIZE), in_window(("d", 3, "", 0.0), 9999)], COUNTS))
    assert harness.metrics.count("numLateRecordsDropped") == 1
    harness.end_input()
    assert [r[0] for r in harness.rows()] == ["b", "d"]


def test_rows_that_take_others_back_are_refused() -> None:
    harness = OperatorHarness(window_top(COUNTS, last=1), schema=COUNTS)
    with pytest.raises(InternalError, match="take others back"):
        harness.push(columns([in_window(("a", 1, "", 0.0), SIZE)], COUNTS), row_kinds=[1])


def test_keeping_the_last_by_time_takes_the_newest_of_equal_rows() -> None:
    rows = [("a", 1, "old", 0.5, 0, SIZE), ("a", 1, "new", 0.5, 0, SIZE), ("b", 2, "only", 0.5, 0, SIZE)]
    for newest, expected in ((False, ["old", "only"]), (True, ["new", "only"])):
        harness = OperatorHarness(
            window_top(first=1, last=1, rank_column=False, newest_of_equals=newest), schema=WINDOWED
        )
        for row in rows:
            harness.push(columns([row], WINDOWED), timestamps=[row[4]])
        harness = OperatorHarness.restore(
            window_top(first=1, last=1, rank_column=False, newest_of_equals=newest),
            [harness.snapshot()],
            schema=WINDOWED,
        )
        harness.watermark(SIZE)
        assert [row[2] for row in harness.rows()] == expected
