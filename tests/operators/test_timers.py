"""Timers: deduplicated, in order, in both kinds of time, and part of keyed state."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot
from flowrun.core.clock import ManualClock
from flowrun.core.semantics import TimeDomain
from flowrun.errors import StateError
from flowrun.operators.timers import InternalTimerService, Timer
from flowrun.state.backend.objects import ChangeSet
from flowrun.state.redistribution import redistribute
from flowrun.testing import ManualProcessingTime
from tests.examples import examples

KEYS = pa.schema([("user", pa.string()), ("item", pa.int64())])
WINDOW = pa.struct([("start", pa.int64()), ("end", pa.int64())])
ANN, BOB = ("ann", 1), ("bob", None)


class Fixture:
    def __init__(self, namespace_type=None):
        self.fired = []
        self.processing_time = ManualProcessingTime(ManualClock())
        self.on_event = lambda timer: None
        self.service = InternalTimerService(
            KEYS, namespace_type or pa.null(), 128, self.processing_time, self._event, self._processing
        )

    def _event(self, timer):
        self.fired.append(timer)
        self.on_event(timer)

    def _processing(self, timer):
        self.fired.append((self.processing_time.now_ms(), *timer))


@pytest.fixture
def f():
    return Fixture()


def test_timers_fire_once_in_order_when_the_watermark_reaches_them(f):
    for timestamp, key in ((20, ANN), (10, BOB), (20, ANN), (10, ANN), (30, ANN)):
        f.service.register_event_time(timestamp, key)
    assert f.service.count(TimeDomain.EVENT) == 4
    f.service.advance_watermark(9)
    assert f.fired == []
    f.service.advance_watermark(20)
    assert f.fired == [Timer(10, BOB, None), Timer(10, ANN, None), Timer(20, ANN, None)]
    f.service.advance_watermark(2**63 - 1)
    assert len(f.fired) == 4
    assert f.service.count(TimeDomain.EVENT) == 0


def test_timers_registered_while_firing_fire_too_if_they_are_due(f):
    f.on_event = lambda timer: timer.timestamp < 50 and f.service.register_event_time(timer.timestamp + 10, timer.key)
    f.service.register_event_time(10, ANN)
    f.service.advance_watermark(35)
    assert [t.timestamp for t in f.fired] == [10, 20, 30]
    assert f.service.current_watermark == 35


def test_deleted_timers_do_not_fire_unless_registered_again(f):
    f.service.register_event_time(10, ANN)
    f.service.register_event_time(10, BOB)
    f.service.delete_event_time(10, ANN)
    f.service.delete_event_time(99, ANN)
    f.service.delete_event_time(10, BOB)
    f.service.register_event_time(10, BOB)
    f.service.advance_watermark(10)
    assert f.fired == [Timer(10, BOB, None)]


def test_one_namespace_is_not_another():
    f = Fixture(WINDOW)
    f.service.register_event_time(9, ANN, (0, 10))
    f.service.register_event_time(9, ANN, (5, 10))
    f.service.delete_event_time(9, ANN, (0, 10))
    f.service.advance_watermark(9)
    assert f.fired == [Timer(9, ANN, (5, 10))]


def test_processing_time_timers_fire_at_their_time(f):
    f.service.register_processing_time(30, ANN)
    f.service.register_processing_time(10, BOB)
    assert f.processing_time.pending == (10,), "one callback, for the first timer"
    f.processing_time.advance(40)
    assert f.fired == [(10, 10, BOB, None), (30, 30, ANN, None)]
    assert f.processing_time.pending == ()


def test_deleting_and_closing_cancel_the_callback(f):
    f.service.register_processing_time(10, ANN)
    f.service.delete_processing_time(10, ANN)
    assert f.processing_time.pending == ()
    f.service.register_processing_time(10, ANN)
    f.service.close()
    f.processing_time.advance(20)
    assert f.fired == []


TIMERS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 50), st.sampled_from("abcdefgh"), st.integers(0, 2)), max_size=40
)


@examples(60)
@given(TIMERS, st.integers(1, 5))
def test_restored_timers_fire_as_the_original_ones_at_any_parallelism(timers, parallelism):
    original = Fixture(pa.int64())
    for event, time, user, namespace in timers:
        register = original.service.register_event_time if event else original.service.register_processing_time
        register(time, (user, 1), namespace)
    snapshot = OperatorSnapshot({"timers": original.service.snapshot()})
    fired = []
    for subtask in range(parallelism):
        restored = Fixture(pa.int64())
        restored.service.restore(redistribute([snapshot], subtask, parallelism, 128).keyed["timers"])
        restored.service.advance_watermark(25)
        restored.processing_time.advance(25)
        fired += restored.fired
    original.service.advance_watermark(25)
    original.processing_time.advance(25)
    assert sorted(map(str, fired)) == sorted(map(str, original.fired))
    if parallelism == 1:
        assert fired == original.fired


def test_the_state_table_is_keyed_and_typed():
    f = Fixture(WINDOW)
    f.service.register_event_time(9, ANN, (0, 10))
    f.service.register_processing_time(5, BOB, None)
    table = f.service.snapshot()
    assert table.schema.names == [KEY_GROUP_COLUMN, "user", "item", "__namespace", "__timestamp", "__domain"]
    assert table.schema.field("__namespace").type == WINDOW
    assert table["__domain"].to_pylist() == ["event", "processing"]
    assert f.service.snapshot().slice(0, 0).schema == Fixture(WINDOW).service.snapshot().schema


def test_state_of_other_keys_is_refused(f):
    with pytest.raises(StateError, match="timers have the columns"):
        f.service.restore(Fixture(WINDOW).service.snapshot())


def test_many_deletions_do_not_pile_up(f):
    for n in range(1000):
        f.service.register_event_time(10_000 + n, ANN)
        f.service.delete_event_time(10_000 + n, ANN)
    assert len(f.service._queues[TimeDomain.EVENT]._heap) <= 65


def test_the_timers_that_come_and_go_are_told():
    changes = {domain: ChangeSet() for domain in TimeDomain}
    processing_time = ManualProcessingTime(ManualClock())
    fired = []
    service = InternalTimerService(KEYS, pa.null(), 128, processing_time, fired.append, fired.append, changes)
    service.register_event_time(10, ANN)
    service.register_event_time(20, ANN)
    service.register_event_time(20, ANN)
    service.register_processing_time(30, BOB)
    service.delete_event_time(20, ANN)
    assert list(changes[TimeDomain.EVENT].take()[0]) == [Timer(10, ANN, None)]
    assert list(changes[TimeDomain.PROCESSING].take()[0]) == [Timer(30, BOB, None)]
    service.advance_watermark(10)
    (gone,) = changes[TimeDomain.EVENT].take()[0].items()
    assert gone[0] == Timer(10, ANN, None)
    assert gone[1] is not True


def test_at_the_end_waiting_processing_time_timers_fire_once():
    f = Fixture()
    again = []

    def fire(timer):
        again.append(timer.timestamp)
        f.service.register_processing_time(timer.timestamp + 5, timer.key)

    f.service._on_processing_time = fire
    for time in (30, 20):
        f.service.register_processing_time(time, ANN)
    f.service.fire_pending_processing_time()
    assert again == [20, 30]
    assert f.processing_time.pending == (25,)
