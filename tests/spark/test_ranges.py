"""What a backfill reads: enough for exact rows, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from flowrun.core.schema import Schema
from flowrun.core.semantics import FrameUnit, JoinKind, SortKey
from flowrun.plan.co_process import CoProcess
from flowrun.plan.description import Rows, node_description
from flowrun.plan.joins import IntervalJoin
from flowrun.plan.nodes import NodeHints, Plan, PlanNode, Scan, walk_plan
from flowrun.plan.relational import (
    Deduplicate,
    Frame,
    GroupAggregate,
    Keep,
    OverAggregate,
    TimeDomain,
    WindowTableFunction,
)
from flowrun.plan.windows import (
    CountWindow,
    CumulativeWindow,
    GlobalWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    WindowSpec,
)
from flowrun.spark.context import TimeRange
from flowrun.spark.ranges import Reading, reading_for
from tests.plan.plans import calc, scan, sink, window
from tests.spark.plans import Table, sql_plan

pytestmark = pytest.mark.everyday

HOUR = 3_600_000
RANGE = TimeRange(10 * HOUR, 11 * HOUR)


def read(*nodes: PlanNode, emitted: TimeRange = RANGE) -> Reading:
    return reading_for(Plan("p", tuple(sink(n, f"out{i}") for i, n in enumerate(nodes))), emitted)


def bounds(node: PlanNode, *scans: Scan, emitted: TimeRange = RANGE) -> list[TimeRange]:
    found = read(node, emitted=emitted).bounds
    return [found[id(s)] for s in scans]


def test_rows_that_only_pass_are_read_in_the_range_itself() -> None:
    rows = scan(event_time=True)
    assert bounds(calc(rows, "id"), rows) == [RANGE]


@pytest.mark.parametrize(
    ("of", "start", "unaligned"),
    [
        (TumblingWindow(HOUR), 10 * HOUR, 10 * HOUR),
        (TumblingWindow(HOUR, offset_ms=60_000), 9 * HOUR + 60_000, 10 * HOUR + 60_000),
        (SlidingWindow(3 * HOUR, HOUR), 8 * HOUR, 8 * HOUR),
        (CumulativeWindow(2 * HOUR, HOUR), 10 * HOUR, 10 * HOUR),
        (CumulativeWindow(5 * HOUR, HOUR), 10 * HOUR, 10 * HOUR),
        (CumulativeWindow(4 * HOUR, HOUR), 8 * HOUR, 8 * HOUR),
        (CountWindow(3, 3), None, None),
        (GlobalWindow(), None, None),
    ],
)
def test_a_window_needs_what_its_first_result_covers(of: WindowSpec, start: int | None, unaligned: int | None) -> None:
    rows = scan(event_time=True)
    counted = window(rows, "COUNT(*) AS n", keys=("user",), of=of)
    assert bounds(counted, rows) == [TimeRange(start, 11 * HOUR)]
    later = TimeRange(RANGE.start + 90_000, 11 * HOUR)
    assert bounds(counted, rows, emitted=later) == [TimeRange(unaligned, 11 * HOUR)]


def test_a_session_that_ends_with_the_range_must_see_whether_a_row_touches_it() -> None:
    rows = scan(event_time=True)
    sessions = window(rows, "COUNT(*) AS n", keys=("user",), of=SessionWindow(1000))
    assert bounds(sessions, rows) == [TimeRange(None, 11 * HOUR + 1)]


def test_windows_over_windows_add_up() -> None:
    rows = scan(event_time=True)
    minutes = window(rows, "COUNT(*) AS n", of=TumblingWindow(60_000))
    hours = window(minutes, "SUM(n) AS n", of=TumblingWindow(HOUR))
    assert bounds(hours, rows) == [RANGE]


def group(node: PlanNode) -> GroupAggregate:
    return GroupAggregate(
        schema=Schema(node.schema.fields[:1]), hints=NodeHints(), input=node, keys=(0,), aggregates=()
    )


def test_what_remembers_without_bound_reads_everything_before() -> None:
    rows = scan(event_time=True)
    aggregate = group(rows)
    reading = read(aggregate)
    assert reading.bounds[id(rows)] == TimeRange(None, 11 * HOUR)
    assert reading.remembering == (aggregate,)
    assert reading.stops == {id(aggregate): 11 * HOUR}


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_function_of_two_streams_reads_everything_before_of_both(broadcast: bool) -> None:
    one, other = scan(event_time=True, name="l"), scan(event_time=True, name="r")
    keys = None if broadcast else (0,)
    both = CoProcess(one.schema, NodeHints(), one, other, "m:F", left_keys=(0,), right_keys=keys, broadcast=broadcast)
    assert bounds(both, one, other) == [TimeRange(None, 11 * HOUR)] * 2


def test_a_scan_that_two_read_gives_what_either_needs() -> None:
    rows = scan(event_time=True)
    reading = read(calc(rows, "id"), window(rows, "COUNT(*) AS n", of=SlidingWindow(2 * HOUR, HOUR)))
    assert reading.bounds[id(rows)] == TimeRange(9 * HOUR, 11 * HOUR)


def test_a_table_without_event_time_is_read_whole() -> None:
    assert read(calc(scan(), "id")).bounds == {}


def join(left: PlanNode, right: PlanNode, lower: int, upper: int, kind: JoinKind) -> IntervalJoin:
    fields: Any = (*left.schema.fields, *(f for f in right.schema.fields))
    names = [f"c{i}" for i in range(len(fields))]
    schema = Schema.from_pairs([(n, f.type) for n, f in zip(names, fields, strict=True)])
    return IntervalJoin(
        schema=schema,
        hints=NodeHints(),
        left=left,
        right=right,
        kind=kind,
        left_keys=(0,),
        right_keys=(0,),
        left_time=4,
        right_time=4,
        lower_ms=lower,
        upper_ms=upper,
    )


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        (JoinKind.INNER, (-20, 0), (-5, 0)),
        (JoinKind.LEFT, (-20, 0), (-5, 20)),
        (JoinKind.RIGHT, (-20, 5), (-5, 0)),
        (JoinKind.FULL, (-20, 5), (-5, 20)),
    ],
)
def test_an_interval_join_looks_back_and_for_outer_rows_ahead(
    kind: JoinKind, left: tuple[int, int], right: tuple[int, int]
) -> None:
    one, other = scan(event_time=True, name="l"), scan(event_time=True, name="r")
    found = bounds(join(one, other, -5, 20, kind), one, other)
    wanted = [TimeRange(10 * HOUR + a, 11 * HOUR + b) for a, b in (left, right)]
    assert found == wanted


def test_rows_read_for_an_outer_join_do_not_reach_a_result_as_at_the_end() -> None:
    rows, other = scan(event_time=True, name="r"), scan(event_time=True, name="l")
    aggregate = group(rows)
    reading = read(join(other, rows, 0, 500, JoinKind.LEFT), aggregate)
    assert reading.bounds[id(rows)] == TimeRange(None, 11 * HOUR + 500)
    assert reading.stops[id(aggregate)] == 11 * HOUR


def over(node: PlanNode, frame: Frame) -> OverAggregate:
    return OverAggregate(
        schema=node.schema,
        hints=NodeHints(),
        input=node,
        keys=(0,),
        order=(SortKey(4),),
        domain=TimeDomain.EVENT,
        frame=frame,
        calls=(),
    )


def test_over_a_range_looks_back_by_it_and_over_rows_to_the_beginning() -> None:
    rows = scan(event_time=True)
    assert bounds(over(rows, Frame(FrameUnit.RANGE, 7000)), rows) == [TimeRange(10 * HOUR - 7000, 11 * HOUR)]
    assert bounds(over(rows, Frame(FrameUnit.ROWS, 3)), rows) == [TimeRange(None, 11 * HOUR)]
    assert bounds(over(rows, Frame(FrameUnit.RANGE)), rows) == [TimeRange(None, 11 * HOUR)]


def test_deduplication_tells_of_the_end_of_the_range() -> None:
    rows = scan(event_time=True)
    last = Deduplicate(
        schema=rows.schema, hints=NodeHints(), input=rows, keys=(0,), time=4, keep=Keep.LAST, domain=TimeDomain.EVENT
    )
    reading = read(last)
    assert reading.bounds[id(rows)] == TimeRange(None, 11 * HOUR)
    assert reading.stops == {id(last): 11 * HOUR}


def test_ranges_without_a_bound() -> None:
    rows = scan(event_time=True)
    hours = window(rows, "COUNT(*) AS n", of=TumblingWindow(HOUR))
    assert bounds(hours, rows, emitted=TimeRange(None, 5)) == [TimeRange(None, 5)]
    assert bounds(hours, rows, emitted=TimeRange(HOUR, None)) == [TimeRange(HOUR, None)]
    assert read(hours, emitted=TimeRange()).remembering == ()


def test_every_kind_of_node_has_a_rule() -> None:
    from flowrun.spark import ranges
    from flowrun.spark.translation import HOSTED, NATIVE

    source = ranges._needed.__code__.co_names
    for kind in (*NATIVE, *HOSTED):
        passes = node_description(kind).rows in (Rows.EACH, Rows.REPEATED)
        assert passes or kind in (*ranges._SAME, *ranges._WITHOUT_BOUND) or kind.__name__ in source, kind


EVENTS = "k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
PAIRS = """CREATE TEMPORARY VIEW pairs AS SELECT a.k AS k, a.ts AS at, b.ts AS bt FROM a JOIN b ON a.k = b.k
    AND b.ts BETWEEN a.ts - INTERVAL '5' MINUTE AND a.ts + INTERVAL '20' MINUTE;"""


def of_script(query: str) -> tuple[Reading, dict[str, TimeRange]]:
    """(the reading of a query over tables `a` and `b`, what is read of each)."""
    made = sql_plan([Table("a", EVENTS, []), Table("b", EVENTS, [])], query)
    reading = reading_for(made, RANGE)
    names = {id(n): n.table.name for n in walk_plan(made) if isinstance(n, Scan)}
    return reading, {names[i]: period for i, period in reading.bounds.items()}


def test_rows_of_sessions_are_read_from_the_beginning() -> None:
    reading, found = of_script(
        "SELECT k, window_end FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
    )
    assert found == {"a": TimeRange(None, 11 * HOUR + 1)}
    assert [type(n) for n in reading.remembering] == [WindowTableFunction]
    assert list(reading.written.values()) == [RANGE]


def test_rows_in_windows_are_read_from_where_the_first_window_begins() -> None:
    windowed = "(SELECT * FROM HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))"
    _, found = of_script(
        f"""SELECT l.k, l.window_end FROM {windowed.format("a")} AS l JOIN {windowed.format("b")} AS r
        ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"""
    )
    assert found == {"a": TimeRange(9 * HOUR, 11 * HOUR), "b": TimeRange(9 * HOUR, 11 * HOUR)}
    _, found = of_script(
        f"SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n "
        f"FROM {windowed.format('a')}) WHERE n = 1"
    )
    assert found == {"a": TimeRange(9 * HOUR, 11 * HOUR)}


def test_windows_by_the_earlier_time_of_a_pair_wait_for_the_later_one() -> None:
    minute = 60_000
    query = (
        "SELECT COUNT(*) FROM TUMBLE(TABLE pairs, DESCRIPTOR({}), INTERVAL '1' HOUR) GROUP BY window_start, window_end"
    )
    _, found = of_script(PAIRS + query.format("at"))
    # rows of pairs carry the later of their times: up to 20 minutes later than `at`
    assert found == {
        "a": TimeRange(10 * HOUR - 20 * minute, 11 * HOUR + 20 * minute),
        "b": TimeRange(10 * HOUR - 5 * minute, 11 * HOUR + 20 * minute),
    }
    _, found = of_script(PAIRS + query.format("bt"))
    assert found["a"].stop == 11 * HOUR + 5 * minute


def test_only_final_rows_are_cut_at_the_beginning_of_the_range() -> None:
    last = "SELECT k, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts {}) AS n FROM a) WHERE n = 1"
    assert list(of_script(last.format("DESC"))[0].written) == []
    assert list(of_script(last.format("ASC"))[0].written.values()) == [RANGE]
    assert list(of_script("SELECT k, COUNT(*) FROM a GROUP BY k")[0].written) == []
