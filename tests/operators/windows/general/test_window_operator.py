from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.semantics import TimeDomain
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.operators.windows.general import operator as window_operator
from flowrun.operators.windows.general.evictors import CountEvictor, DeltaEvictor, TimeEvictor
from flowrun.operators.windows.general.factories import (
    GeneralWindowFactory,
    GlobalAssigner,
    SessionAssigner,
    WindowAssigner,
)
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.operators.windows.slices.factories import SliceWindowFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored
from tests.operators.windows.flink_oracle import AlignedOracle, SessionOracle
from tests.operators.windows.general.rule_oracle import RuleOracle
from tests.operators.windows.general_streams import CASES, driven, emitted, push_cut, rescaled, unbounded_schema
from tests.operators.windows.streams import (
    EVERYTHING,
    INPUT,
    LATE,
    Stream,
    by_window,
    oracle_log,
    output_schema,
    streams,
)

FEW = examples(40)
KEYS = ((0,), (1,), (0, 1), ())
RULES = (
    TriggerRule(count=1),
    TriggerRule(count=3),
    TriggerRule(count=2, purge=True),
    TriggerRule(every_ms=3),
    TriggerRule(every_ms=4, late_count=2),
    TriggerRule(every_ms=5, count=3, purge=True),
    TriggerRule(delta=2, threshold=3.0),
    TriggerRule(delta=2, threshold=1.0, count=4, every_ms=6),
    TriggerRule(late_count=3),
    TriggerRule(purge=True),
)
EVICTORS = (None, None, CountEvictor(2), CountEvictor(2, after=True), TimeEvictor(5), TimeEvictor(5, after=True))


def factory(assigner: WindowAssigner, keys: Sequence[int], **options: Any) -> GeneralWindowFactory:
    schema = unbounded_schema if isinstance(assigner, GlobalAssigner) else output_schema
    return GeneralWindowFactory(tuple(keys), EVERYTHING, assigner, INPUT, schema(keys, EVERYTHING), **options)


@FEW
@given(
    streams(),
    st.sampled_from(CASES),
    st.sampled_from(KEYS),
    st.sampled_from([0, 0, 4, 12]),
    st.sampled_from([1, 2, 7, 1024]),
)
def test_with_the_default_trigger_it_equals_flink_row_by_row_and_the_fast_path(
    stream: Stream, case: Any, keys: tuple[int, ...], lateness: int, cuts: int
) -> None:
    assigner, assign = case
    events = (*stream.events, MAX_TIMESTAMP)
    found = driven(factory(assigner, keys, allowed_lateness_ms=lateness, late_tag=LATE), events, cuts)
    oracle = AlignedOracle(assign, keys, EVERYTHING, lateness)
    assert by_window(found.log, len(keys)) == by_window(oracle_log(oracle, events), len(keys))
    assert found.late == oracle.late
    assert found.dropped == len(oracle.late)
    schema = output_schema(keys, EVERYTHING)
    fast = SliceWindowFactory(keys, EVERYTHING, assigner, INPUT, schema, allowed_lateness_ms=lateness, late_tag=LATE)
    assert by_window(driven(fast, events, cuts).log, len(keys)) == by_window(found.log, len(keys))


@pytest.mark.exhaustive
@FEW
@given(streams(), st.sampled_from(KEYS), st.sampled_from([0, 4, 12]), st.sampled_from([1, 2, 7, 1024]))
def test_sessions_equal_the_fast_path(stream: Stream, keys: tuple[int, ...], lateness: int, cuts: int) -> None:
    events = (*stream.events, MAX_TIMESTAMP)
    logs, lates = [], []
    schema = output_schema(keys, EVERYTHING)
    fast = SessionWindowFactory(keys, EVERYTHING, 6, INPUT, schema, allowed_lateness_ms=lateness, late_tag=LATE)
    for recipe in (factory(SessionAssigner(6), keys, allowed_lateness_ms=lateness, late_tag=LATE), fast):
        found = driven(recipe, events, cuts)
        logs.append(by_window(found.log, len(keys)))
        lates.append(found.late)
    oracle = SessionOracle(6, keys, EVERYTHING, lateness)
    expected = by_window(oracle_log(oracle, events), len(keys))
    assert logs[0] == expected
    assert logs[1] == expected
    assert lates == [oracle.late, oracle.late]


@FEW
@given(
    streams(),
    st.sampled_from((*CASES, (GlobalAssigner(), None))),
    st.sampled_from(RULES),
    st.sampled_from(EVICTORS),
    st.sampled_from(KEYS),
    st.sampled_from([0, 4, 12]),
    st.sampled_from([1, 2, 7, 1024]),
)
def test_rules_and_evictors_work_row_by_row_whatever_the_batches(
    stream: Stream, case: Any, rule: TriggerRule, evictor: Any, keys: tuple[int, ...], lateness: int, cuts: int
) -> None:
    assigner, assign = case
    events = (*stream.events, MAX_TIMESTAMP)
    recipe = factory(assigner, keys, rule=rule, evictor=evictor, allowed_lateness_ms=lateness, late_tag=LATE)
    found = driven(recipe, events, cuts)
    oracle = RuleOracle(assign, keys, EVERYTHING, rule, evictor, lateness)
    assert in_any_order(found.log) == in_any_order(oracle_log(oracle, events))
    assert found.late == oracle.late


def in_any_order(log: Sequence[Any]) -> list[Any]:
    """Firings of one watermark in a fixed order; those of rows stay in the rows' order."""
    return [(kind, sorted(rows, key=repr) if kind == "fired" else rows) for kind, rows in log]


@FEW
@given(
    streams(),
    st.sampled_from(RULES[:6]),
    st.sampled_from(EVICTORS),
    st.sampled_from([0, 12]),
    st.sampled_from([2, 7, 1024]),
)
def test_sessions_with_rules_do_not_depend_on_batches(
    stream: Stream, rule: TriggerRule, evictor: Any, lateness: int, cuts: int
) -> None:
    events = (*stream.events, MAX_TIMESTAMP)
    recipe = factory(SessionAssigner(6), (0,), rule=rule, evictor=evictor, allowed_lateness_ms=lateness)
    logs = [in_any_order(driven(recipe, events, c).log) for c in (1, cuts)]
    assert logs[0] == logs[1]


@pytest.mark.exhaustive
@FEW
@given(
    streams(),
    st.sampled_from((*CASES[:3], (SessionAssigner(6), None), (GlobalAssigner(), None))),
    st.sampled_from(
        (None, TriggerRule(count=2), TriggerRule(every_ms=4, late_count=2), TriggerRule(count=3, purge=True))
    ),
    st.sampled_from(EVICTORS),
    st.sampled_from([0, 12]),
    st.sampled_from([(1, 2), (3, 2), (2, 1)]),
)
def test_windows_go_on_where_they_were_at_any_parallelism(
    stream: Stream, case: Any, rule: TriggerRule | None, evictor: Any, lateness: int, scales: tuple[int, int]
) -> None:
    recipe = factory(case[0], (0,), rule=rule, evictor=evictor, allowed_lateness_ms=lateness)
    middle = len(stream.events) // 2
    whole = OperatorHarness(recipe, schema=INPUT)
    feed(whole, [*stream.events, MAX_TIMESTAMP])
    rows = rescaled(
        recipe,
        (0,),
        lambda h: feed(h, stream.events[:middle]),
        lambda h: feed(h, [*stream.events[middle:], MAX_TIMESTAMP]),
        first=scales[0],
        second=scales[1],
    )
    assert sorted(rows, key=repr) == sorted(emitted(whole), key=repr)


def feed(harness: OperatorHarness, events: Sequence[Any]) -> None:
    for event in events:
        if isinstance(event, int):
            harness.watermark(event)
        else:
            push_cut(harness, [event], 1)


# ---- processing time


def clocked(recipe: GeneralWindowFactory) -> OperatorHarness:
    """A harness at a time that is a multiple of 100."""
    harness = OperatorHarness(recipe, schema=INPUT)
    harness.advance_processing_time(-harness.clock.now_ms() % 100)
    return harness


def row(name: str, v: int | None) -> Any:
    return ((name, 1, v, "x", True), None)


def counts(harness: OperatorHarness) -> list[tuple[Any, Any]]:
    """(key, number of rows)."""
    names = [f.name for f in harness.operator._factory.output_schema]
    return [(r[0], r[names.index("n")]) for r in harness.rows()]


def test_processing_time_windows_fire_by_the_clock() -> None:
    harness = clocked(factory(TumblingSlices(10), (0,), rule=TriggerRule(count=2), domain=TimeDomain.PROCESSING))
    push_cut(harness, [row("a", 1), row("a", 2), row("a", 3)], 5)
    assert counts(harness) == [("a", 2)]
    harness.advance_processing_time(9)
    assert counts(harness) == [("a", 2), ("a", 3)]
    harness.advance_processing_time(20)
    assert len(harness.rows()) == 2
    left = stored(harness.snapshot()).keyed
    assert not any(table.num_rows for table in left.values()), "closed windows leave nothing behind"


def test_processing_time_sessions_close_after_their_gap() -> None:
    harness = clocked(factory(SessionAssigner(10), (0,), evictor=CountEvictor(2), domain=TimeDomain.PROCESSING))
    for _ in range(3):
        push_cut(harness, [row("a", 1)], 1)
        harness.advance_processing_time(6)
    harness.advance_processing_time(6)
    assert counts(harness) == [("a", 2)]


def test_continuous_processing_time_fires_while_a_window_is_open() -> None:
    harness = clocked(factory(TumblingSlices(100), (0,), rule=TriggerRule(every_ms=10), domain=TimeDomain.PROCESSING))
    push_cut(harness, [row("a", 1)], 1)
    harness.advance_processing_time(30)
    push_cut(harness, [row("a", 2)], 1)
    harness.advance_processing_time(90)
    assert counts(harness) == [("a", 1), ("a", 2), ("a", 2)]


@pytest.mark.parametrize("assigner", [TumblingSlices(100), SessionAssigner(50), GlobalAssigner()])
def test_what_processing_time_has_left_open_fires_at_the_end_of_bounded_input(assigner: WindowAssigner) -> None:
    recipe = factory(assigner, (0,), evictor=CountEvictor(5), domain=TimeDomain.PROCESSING)
    for drained in (True, False):
        harness = clocked(recipe)
        push_cut(harness, [row("a", 1), row("b", 1)], 2)
        harness.end_input(drain=drained)
        assert counts(harness) == ([("a", 1), ("b", 1)] if drained else [])
        harness.close()
        assert harness.processing_time.pending == () or not drained


def test_restored_processing_time_windows_fire_by_the_clock() -> None:
    recipe = factory(TumblingSlices(10), (0,), evictor=CountEvictor(5), domain=TimeDomain.PROCESSING)
    harness = clocked(recipe)
    push_cut(harness, [row("a", 1)], 1)
    restored = OperatorHarness.restore(recipe, [stored(harness.snapshot())], schema=INPUT, clock=harness.clock)
    restored.advance_processing_time(10)
    assert counts(restored) == [("a", 1)]


# ---- window functions, evictors by number, room


def test_a_delta_evictor_keeps_rows_near_the_last_one() -> None:
    recipe = factory(TumblingSlices(10), (0,), evictor=DeltaEvictor(2, 3.0))
    harness = OperatorHarness(recipe, schema=INPUT)
    push_cut(harness, [(("a", 1, v, "x", True), 1) for v in (1, 9, None, 7, 8)], 2)
    harness.watermark(10)
    assert counts(harness) == [("a", 4)]


def test_rows_and_keys_of_closed_windows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_operator, "_SPARE_ROWS", 8)
    harness = OperatorHarness(factory(TumblingSlices(10), (0,), evictor=CountEvictor(3)), schema=INPUT)
    for t in range(300):
        push_cut(harness, [((f"k{t // 7}", 1, t, "x", True), t)], 1)
        harness.watermark(t - 5)
    operator = harness.operator
    assert len(operator._contents) < 64
    assert len(operator._slots) < 32
    harness.watermark(MAX_TIMESTAMP)
    assert sum(n for _, n in counts(harness)) == sum(min(len(list(g)), 3) for g in spans())


def spans() -> list[list[int]]:
    groups: dict[tuple[int, int], list[int]] = {}
    for t in range(300):
        groups.setdefault((t // 7, t // 10), []).append(t)
    return list(groups.values())


def test_the_last_window_of_time_is_not_cleaned_up_before_the_end() -> None:
    recipe = factory(TumblingSlices(10), (0,), rule=TriggerRule(count=1), allowed_lateness_ms=MAX_TIMESTAMP)
    harness = OperatorHarness(recipe, schema=INPUT)
    push_cut(harness, [(("a", 1, 1, "x", True), 5)], 1)
    harness.watermark(10_000)
    push_cut(harness, [(("a", 1, 1, "x", True), 5)], 1)
    assert counts(harness)[-1] == ("a", 2)


def test_a_delta_cannot_be_used_with_sessions() -> None:
    with pytest.raises(ValueError, match="cannot be used with session windows"):
        factory(SessionAssigner(10), (0,), rule=TriggerRule(delta=2, threshold=1.0))
