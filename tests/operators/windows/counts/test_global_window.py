from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.semantics import TimeDomain
from flowrun.operators.windows.counts import global_window
from flowrun.operators.windows.counts.factories import GlobalWindowFactory, global_fast_path
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored
from tests.operators.windows.general_streams import emitted, push_cut, rescaled, unbounded_schema
from tests.operators.windows.kernels import python_value
from tests.operators.windows.streams import EVERYTHING, INPUT, ROWS, Stream, plain, streams

FEW = examples(60)
KEYS = ((0,), (1,), (0, 1), ())
TIMED = st.lists(st.tuples(ROWS, st.integers(-20, 50)), max_size=60)


def factory(keys: Sequence[int], rule: TriggerRule | None = None, **options: Any) -> GlobalWindowFactory:
    return GlobalWindowFactory(tuple(keys), EVERYTHING, INPUT, unbounded_schema(keys, EVERYTHING), rule, **options)


def result(key: tuple[Any, ...], content: Sequence[Any]) -> tuple[Any, ...]:
    values = [python_value(a, [r for r, _ in content]) for a in EVERYTHING]
    newest = None if content[0][1] is None else max(t for _, t in content)
    return (*plain([(*key, *values)])[0], newest)


def by_key(rows: Sequence[Any], keys: Sequence[int]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for row, time in rows:
        groups.setdefault(tuple(row[k] for k in keys), []).append((row, time))
    return groups


class ContinuousOracle:
    """Flink's continuous trigger on a global window, row by row, without repeated firings."""

    def __init__(self, keys: Sequence[int], every: int, *, purge: bool) -> None:
        self.keys, self.every, self.purge = keys, every, purge
        self.now = -(2**63)
        self.next: dict[Any, int] = {}
        self.changed: dict[Any, bool] = {}
        self.content: dict[Any, list[Any]] = {}
        self.emitted: list[Any] = []

    def row(self, row: Any, time: int) -> None:
        key = tuple(row[k] for k in self.keys)
        if key not in self.next:
            self.next[key] = time - time % self.every + self.every
        elif not self.changed[key]:
            while self.next[key] <= self.now:
                self.next[key] += self.every
        self.changed[key] = True
        self.content.setdefault(key, []).append((row, time))

    def advance(self, now: int) -> None:
        self.now = now
        for key in sorted(
            (k for k in self.next if self.changed[k] and self.next[k] <= now), key=lambda k: self.next[k]
        ):
            self.emitted.append(result(key, self.content[key]))
            self.changed[key] = False
            self.next[key] += self.every
            if self.purge:
                self.content[key] = []


@FEW
@given(TIMED, st.sampled_from(KEYS), st.sampled_from([1, 7, 1024]), st.booleans(), st.sampled_from(list(TimeDomain)))
def test_without_a_trigger_everything_fires_once_at_the_end(
    rows: list[Any], keys: tuple[int, ...], cuts: int, timed: bool, domain: TimeDomain
) -> None:
    rows = [(r, t if timed else None) for r, t in rows]
    harness = OperatorHarness(factory(keys, domain=domain), schema=INPUT)
    push_cut(harness, rows, cuts)
    harness.watermark(1000)
    assert harness.rows() == []
    harness.end_input()
    expected = [result(k, content) for k, content in by_key(rows, keys).items()]
    assert sorted(emitted(harness), key=repr) == sorted(expected, key=repr)


def test_input_that_is_stopped_without_drain_gives_nothing() -> None:
    for domain in TimeDomain:
        harness = OperatorHarness(factory((0,), domain=domain), schema=INPUT)
        push_cut(harness, [(("a", 1, 1, "x", True), 1)], 1)
        harness.end_input(drain=False)
        assert harness.rows() == []


@pytest.mark.parametrize("rule", [None, TriggerRule(every_ms=5)])
def test_rows_after_the_end_of_event_time_are_late(rule: TriggerRule | None) -> None:
    harness = OperatorHarness(factory((0,), rule), schema=INPUT)
    harness.watermark(MAX_TIMESTAMP)
    push_cut(harness, [(("a", 1, 1, "x", True), 1)], 1)
    harness.end_input()
    assert harness.rows() == []
    assert harness.metrics.count("numLateRecordsDropped") == 1


@FEW
@given(TIMED, st.sampled_from(KEYS), st.integers(1, 4), st.booleans(), st.sampled_from([1, 5, 1024]))
def test_a_count_fires_every_so_many_rows(
    rows: list[Any], keys: tuple[int, ...], count: int, purge: bool, cuts: int
) -> None:
    harness = OperatorHarness(factory(keys, TriggerRule(count=count, purge=purge)), schema=INPUT)
    push_cut(harness, rows, cuts)
    harness.end_input()
    expected = [
        result(k, content[end - count if purge else 0 : end])
        for k, content in by_key(rows, keys).items()
        for end in range(count, len(content) + 1, count)
    ]
    assert sorted(emitted(harness), key=repr) == sorted(expected, key=repr)


def drive(harness: OperatorHarness, oracle: ContinuousOracle, events: Sequence[Any], cuts: int) -> list[Any]:
    """What came out after each watermark, next to the oracle's."""
    waiting: list[Any] = []
    for event in events:
        if not isinstance(event, int):
            waiting.append(event)
            oracle.row(*event)
            continue
        push_cut(harness, waiting, cuts)
        waiting.clear()
        harness.watermark(event)
        oracle.advance(event)
    return [sorted(emitted(harness), key=repr), sorted(oracle.emitted, key=repr)]


@pytest.mark.exhaustive
@FEW
@given(streams(), st.sampled_from(KEYS), st.sampled_from([3, 10]), st.booleans(), st.sampled_from([1, 2, 1024]))
def test_an_interval_of_event_time_fires_keys_with_new_rows(
    stream: Stream, keys: tuple[int, ...], every: int, purge: bool, cuts: int
) -> None:
    harness = OperatorHarness(factory(keys, TriggerRule(every_ms=every, purge=purge)), schema=INPUT)
    oracle = ContinuousOracle(keys, every, purge=purge)
    found, expected = drive(harness, oracle, [*stream.events, MAX_TIMESTAMP], cuts)
    assert found == expected


@pytest.mark.exhaustive
@FEW
@given(streams(), st.sampled_from(KEYS[:3]), st.booleans(), st.sampled_from([(1, 2), (3, 2)]))
def test_restored_intervals_go_on_at_any_parallelism(
    stream: Stream, keys: tuple[int, ...], purge: bool, scales: tuple[int, int]
) -> None:
    middle = len(stream.events) // 2
    reached = max((e for e in stream.events[:middle] if isinstance(e, int)), default=-100)
    oracle = ContinuousOracle(keys, 10, purge=purge)
    for event in (*stream.events, MAX_TIMESTAMP):
        oracle.advance(event) if isinstance(event, int) else oracle.row(*event)

    def before(harness: OperatorHarness) -> None:
        drive(harness, ContinuousOracle(keys, 10, purge=purge), stream.events[:middle], 4)
        tail = stream.events[:middle][::-1]
        rest = tail[: next((i for i, e in enumerate(tail) if isinstance(e, int)), len(tail))][::-1]
        push_cut(harness, rest, 4)

    def after(harness: OperatorHarness) -> None:
        harness.watermark(reached)
        drive(harness, ContinuousOracle(keys, 10, purge=purge), [*stream.events[middle:], MAX_TIMESTAMP], 4)

    rows = rescaled(
        factory(keys, TriggerRule(every_ms=10, purge=purge)), keys, before, after, first=scales[0], second=scales[1]
    )
    assert sorted(rows, key=repr) == sorted(oracle.emitted, key=repr)


@FEW
@given(TIMED, TIMED, st.sampled_from(KEYS[:3]), st.sampled_from([(1, 2), (3, 2)]))
def test_restored_totals_are_complete_at_any_parallelism(
    first: list[Any], second: list[Any], keys: tuple[int, ...], scales: tuple[int, int]
) -> None:
    def after(harness: OperatorHarness) -> None:
        push_cut(harness, second, 5)
        harness.end_input()

    rows = rescaled(factory(keys), keys, lambda h: push_cut(h, first, 5), after, first=scales[0], second=scales[1])
    expected = [result(k, content) for k, content in by_key([*first, *second], keys).items()]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)


def test_an_interval_of_processing_time_fires_by_the_clock_and_at_the_end() -> None:
    rule = TriggerRule(every_ms=10)
    harness = OperatorHarness(factory((0,), rule, domain=TimeDomain.PROCESSING), schema=INPUT)
    start = harness.clock.now_ms()
    harness.advance_processing_time(-start % 10 + 5)
    push_cut(harness, [(("a", 1, 1, "x", True), None), (("b", 1, 2, "x", True), None)], 1)
    harness.advance_processing_time(4)
    assert harness.rows() == []
    harness.advance_processing_time(1)
    assert [(r[0], r[1]) for r in harness.rows()] == [("a", 1), ("b", 1)]
    harness.advance_processing_time(30)
    assert len(harness.rows()) == 2, "nothing new, nothing fires"
    push_cut(harness, [(("a", 1, 3, "x", True), None)], 1)
    harness.end_input()
    assert [(r[0], r[1]) for r in harness.rows()] == [("a", 1), ("b", 1), ("a", 2)]
    harness.close()
    assert harness.processing_time.pending == ()


def test_a_restored_interval_of_processing_time_waits_again() -> None:
    recipe = factory((0,), TriggerRule(every_ms=10), domain=TimeDomain.PROCESSING)
    harness = OperatorHarness(recipe, schema=INPUT)
    push_cut(harness, [(("a", 1, 1, "x", True), None)], 1)
    restored = OperatorHarness.restore(recipe, [stored(harness.snapshot())], schema=INPUT, clock=harness.clock)
    restored.advance_processing_time(10)
    assert len(restored.rows()) == 1


def test_replaced_partial_results_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_window, "_SPARE_ROWS", 8)
    harness = OperatorHarness(factory((0,), TriggerRule(every_ms=10)), schema=INPUT)
    rows = [((str(i % 5), 1, i, "x", True), i) for i in range(200)]
    push_cut(harness, rows, 7)
    harness.watermark(MAX_TIMESTAMP)
    expected = [result(k, content) for k, content in by_key(rows, (0,)).items()]
    assert sorted(emitted(harness), key=repr) == sorted(expected, key=repr)


def test_rules_that_need_the_general_operator_are_refused() -> None:
    rule = TriggerRule(delta=2, threshold=1.0)
    assert not global_fast_path(rule)
    with pytest.raises(ValueError, match="needs a GeneralWindowFactory"):
        factory((0,), rule)
    recipe = factory((0,), TriggerRule(count=3))
    assert pickle.loads(pickle.dumps(recipe)) == recipe
