"""Timers take the same time each, however many wait: the work for eight times as many is far from 64 times as much."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.arrays import Integers
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.core.semantics import TimeDomain
from flowrun.operators.process.column_timers import ColumnTimers
from flowrun.operators.process.indexed_entries import IndexedEntries
from flowrun.operators.timers import InternalTimerService, Timer
from flowrun.operators.windows.general.factories import GeneralWindowFactory, SessionAssigner
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.runtime.mailbox import Mailbox
from flowrun.runtime.task.time_service import MailboxTimeService
from flowrun.runtime.timers import TimerThread
from flowrun.state.backend.objects import ChangeSet
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.windows.streams import EVERYTHING, INPUT, output_schema

END = 2**62
Rows = InternalTimerService


def assert_linear(work: Callable[[int], None], small: int) -> None:
    def spent(size: int) -> float:
        began = process_time()
        work(size)
        return process_time() - began

    work(small)  # what is done once is done
    least = min(spent(small) for _ in range(2))
    most = min(spent(8 * small) for _ in range(2))
    assert most < 30 * least, f"{small} timers took {least:.3f} s, 8 times as many {most:.3f} s"


# ---- functions on rows


def row_timers(
    on_timer: Callable[[Timer], None], service: MailboxTimeService
) -> tuple[Rows, dict[TimeDomain, ChangeSet]]:
    changes = {domain: ChangeSet() for domain in TimeDomain}
    schema = pa.schema([("k", pa.int64())])
    return InternalTimerService(schema, pa.null(), 128, service, on_timer, on_timer, changes), changes


def fire_all(timers: Rows, count: int) -> None:
    for i in range(count):
        timers.register_event_time(i * 7919 % count, (i,))
    timers.advance_watermark(END)


def fire_one_key(timers: Rows, count: int) -> None:
    for i in range(count):
        timers.register_event_time(i * 7919 % count, (0,))
    for watermark in range(0, count + 3, 3):
        timers.advance_watermark(watermark)


def fire_one_time(timers: Rows, count: int) -> None:
    for i in range(count):
        timers.register_event_time(5, (i,))
    timers.advance_watermark(5)


def delete_anywhere(timers: Rows, count: int) -> None:
    order = list(range(count))
    random.Random(count).shuffle(order)
    for i in range(count):
        timers.register_event_time(i, (i,))
    for i in order:
        timers.delete_event_time(i, (i,))
        timers.first(TimeDomain.EVENT)


def move_at_each_row(timers: Rows, count: int) -> None:
    for i in range(count):
        timers.delete_event_time(10**6 + i - 10, (i % 10,))
        timers.register_event_time(10**6 + i, (i % 10,))
        timers.advance_watermark(i)


def move_in_processing_time(timers: Rows, count: int) -> None:
    later = timers.current_processing_time + 3_600_000
    for i in range(count):
        timers.delete_processing_time(later + i - 10, (i % 10,))
        timers.register_processing_time(later + i, (i % 10,))


def earlier_and_earlier(timers: Rows, count: int) -> None:
    later = timers.current_processing_time + 3_600_000
    for i in range(count):
        timers.register_processing_time(later - i, (i,))
    timers.fire_pending_processing_time()


@pytest.mark.parametrize(
    "work",
    [
        fire_all,
        fire_one_key,
        fire_one_time,
        delete_anywhere,
        move_at_each_row,
        move_in_processing_time,
        earlier_and_earlier,
    ],
)
def test_timers_of_functions_on_rows(work: Callable[[Rows, int], None]) -> None:
    thread = TimerThread(ManualClock())
    service = MailboxTimeService(thread, Mailbox())

    def run(count: int) -> None:
        timers, changes = row_timers(lambda _: None, service)
        work(timers, count)
        timers.close()
        for kept in changes.values():
            assert not kept.changed or work in (move_at_each_row, move_in_processing_time)

    assert_linear(run, 2_000)
    assert thread.waiting < 1_000, "what was cancelled is forgotten"
    thread.close()


def test_a_snapshot_has_the_timers_that_came_and_went_since_the_last_one() -> None:
    thread = TimerThread(ManualClock())
    timers, changes = row_timers(lambda _: None, MailboxTimeService(thread, Mailbox()))
    for i in range(5_000):
        timers.register_event_time(i, (i,))
    changes[TimeDomain.EVENT].take()
    timers.delete_event_time(7, (7,))
    timers.advance_watermark(2)
    timers.register_event_time(9_000, (1,))
    for _ in range(100):  # leaves no trace
        timers.register_event_time(9_001, (1,))
        timers.delete_event_time(9_001, (1,))
    assert sorted(t.timestamp for t in changes[TimeDomain.EVENT].changed) == [0, 1, 2, 7, 9_000]
    thread.close()


# ---- functions on batches


def numbers(*values: int) -> Integers:
    return np.array(values, np.int64)


def fire_columns(count: int) -> None:
    timers = ColumnTimers()
    for start in range(0, count, 10):
        timers.register(np.arange(start, start + 10), np.arange(start, start + 10) * 7919 % count)
    timers.fire(END, lambda slots, times: None)


def fire_columns_of_one_key(count: int) -> None:
    timers = ColumnTimers()
    timers.register(np.zeros(count // 8, np.int64), np.arange(count // 8))
    timers.fire(END, lambda slots, times: None)


def delete_columns_anywhere(count: int) -> None:
    timers = ColumnTimers()
    timers.register(np.arange(count), np.arange(count))
    order = np.random.default_rng(count).permutation(count)
    for start in range(0, count, 10):
        timers.delete(order[start : start + 10], order[start : start + 10])
        timers.first()


def move_columns(count: int) -> None:
    timers = ColumnTimers()
    keys = np.arange(10)
    for i in range(count // 10):
        timers.delete(keys, np.full(10, 10**6 + i - 1))
        timers.register(keys, np.full(10, 10**6 + i))
        timers.first()
        timers.fire(i, lambda slots, times: None)


@pytest.mark.parametrize(
    "work",
    [fire_columns, fire_columns_of_one_key, delete_columns_anywhere, move_columns],
)
def test_timers_of_functions_on_batches(work: Callable[[int], None]) -> None:
    assert_linear(work, 800)


def rows_and_back(count: int) -> None:
    thread = TimerThread(ManualClock())
    timers, _ = row_timers(lambda _: None, MailboxTimeService(thread, Mailbox()))
    delete_anywhere(timers, count)
    thread.close()


def columns_and_back(count: int) -> None:
    timers, order = ColumnTimers(), np.random.default_rng(count).permutation(count)
    for start in range(0, count, 1_000):
        timers.register(np.arange(start, start + 1_000), np.arange(start, start + 1_000))
    for start in range(0, count, 1_000):
        timers.delete(order[start : start + 1_000], order[start : start + 1_000])


@pytest.mark.exhaustive
@pytest.mark.parametrize("work", [rows_and_back, columns_and_back])
def test_a_million_timers_are_registered_and_deleted_in_four_times_the_time_of_a_quarter(
    work: Callable[[int], None],
) -> None:
    work(10_000)
    began = process_time()
    work(250_000)
    quarter = process_time() - began
    work(1_000_000)
    assert process_time() - began - quarter < 7 * quarter, "16 times if it were quadratic; 4 and the processor's caches"


def test_timers_that_wait_are_not_looked_at_again_when_others_become_due(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    further = IndexedEntries.further

    def counting(entries: IndexedEntries, numbers: Integers) -> pa.Array:
        looked_at.append(len(numbers))
        return further(entries, numbers)

    monkeypatch.setattr(IndexedEntries, "further", counting)
    timers, count = ColumnTimers(), 400
    timers.register(np.zeros(count, np.int64), 2 * np.arange(count))
    fired: list[int] = []

    def fire(slots: Integers, times: Integers) -> None:
        fired.extend(times.tolist())
        timers.register(slots, times + 1 + times % 2)

    timers.fire(2 * count - 1, fire)
    assert fired == list(range(2 * count))
    assert sum(looked_at) <= 4 * len(fired)


def test_a_timer_that_is_deleted_and_registered_again_and_again_is_kept_once() -> None:
    timers = ColumnTimers()
    for _ in range(1_000):
        timers.register(numbers(1, 2), numbers(50, 60))
        timers.delete(numbers(1), numbers(50))
    timers.register(numbers(1), numbers(50))
    assert timers.kept <= 2 * timers.count + 2
    fired: list[tuple[Any, Any]] = []
    timers.fire(100, lambda slots, times: fired.extend(zip(slots.tolist(), times.tolist(), strict=True)))
    assert fired == [(1, 50), (2, 60)]


_changes = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 30)), max_size=25)


@examples(200)
@given(_changes, st.dictionaries(st.integers(0, 30), _changes, max_size=6), st.integers(0, 30))
def test_each_key_gets_its_timers_one_by_one(
    changes: list[tuple[bool, int, int]], on_timer: dict[int, list[tuple[bool, int, int]]], until: int
) -> None:
    """Whatever the function registers and deletes for its own key on the way."""
    wanted: dict[int, list[int]] = defaultdict(list)
    found: dict[int, list[int]] = defaultdict(list)
    for key in range(4):
        live: set[int] = set()
        asked = [(add, time) for add, k, time in changes if k == key]
        done: set[int] = set()
        while True:
            for add, time in asked:
                (live.add if add else live.discard)(time)
            if not (due := [t for t in live if t <= until]):
                break
            live.discard(min(due))
            wanted[key].append(min(due))
            asked = [] if min(due) in done else [(add, time) for add, _, time in on_timer.get(min(due), ())]
            done.add(min(due))
    timers = ColumnTimers()
    for add, key, time in changes:
        (timers.register if add else timers.delete)(numbers(key), numbers(time))
    seen: set[tuple[int, int]] = set()

    def fire(slots: Integers, times: Integers) -> None:
        assert len(set(slots.tolist())) == len(slots)
        assert (times[1:] >= times[:-1]).all()
        for slot, time in zip(slots.tolist(), times.tolist(), strict=True):
            found[slot].append(time)
            for add, _, other in () if (slot, time) in seen else on_timer.get(time, ()):
                (timers.register if add else timers.delete)(numbers(slot), numbers(other))
            seen.add((slot, time))

    timers.fire(until, fire)
    assert found == wanted


# ---- windows


def session_rows(times: Integers, keys: Integers) -> None:
    rule = TriggerRule(every_ms=10**9)
    factory = GeneralWindowFactory(
        (0,), EVERYTHING, SessionAssigner(10), INPUT, output_schema((0,), EVERYTHING), rule=rule
    )
    harness = OperatorHarness(factory, schema=INPUT)
    columns = [pa.nulls(len(times), f.type.arrow) for f in INPUT]
    columns[0] = pa.array(keys.astype(str))
    rows = RecordBatch(pa.RecordBatch.from_arrays(columns, schema=INPUT.arrow), pa.array(times))
    for start in range(0, len(times), 250):
        harness.operator.process_batch(rows.slice(start, 500))
    harness.watermark(END)
    assert len(harness.rows()) == (len(times) if times[1] - times[0] > 10 else 1)


@pytest.mark.parametrize("many", [True, False])
def test_sessions_of_one_key(many: bool) -> None:
    """Many that are open at the same time, or one that bridges the gaps to other rows again and again."""

    def work(count: int) -> None:
        half = np.arange(count) // 2
        bridged = 16 * half + np.where(np.arange(count) % 2 == 0, 8, 0)
        session_rows(np.arange(count) * 20 if many else bridged, np.zeros(count, np.int64))

    assert_linear(work, 500)
