"""Rows that reach an iteration's tail come out of its head."""

from __future__ import annotations

import pickle

import pytest

from flowrun.api.operator import InputStatus
from flowrun.core.clock import ManualClock
from flowrun.core.elements import IDLE
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.errors import DataError, InternalError, UnsupportedPlanError
from flowrun.operators.factories import IterationHeadFactory, IterationTailFactory
from flowrun.operators.iteration import IterationHead
from flowrun.testing import OperatorHarness

SCHEMA = Schema.of(x=BIGINT)


class Loop:
    """One subtask of an iteration: head, tail and a clock that both share."""

    def __init__(self, name: str, wait_ms: int = 100, subtask: int = 0) -> None:
        self.clock = ManualClock()
        options = {"schema": SCHEMA, "clock": self.clock, "subtask": subtask, "parallelism": 2}
        self.head = OperatorHarness(pickle.loads(pickle.dumps(IterationHeadFactory(name, wait_ms))), **options)
        self.tail = OperatorHarness(pickle.loads(pickle.dumps(IterationTailFactory(name))), **options)
        self.woken = 0
        self.head.operator.set_availability_listener(self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def poll(self) -> InputStatus:
        status: InputStatus = self.head.operator.emit_next()
        return status

    def close(self) -> None:
        self.head.close()
        self.tail.close()


def test_rows_come_round_in_order_as_one_batch_and_wake_the_head() -> None:
    loop = Loop("round")
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    loop.tail.push({"x": [1, 2]}, timestamps=[10, 20])
    loop.tail.push({"x": [3]}, timestamps=[30])
    assert loop.woken == 2
    assert loop.poll() is InputStatus.MORE_AVAILABLE
    assert loop.head.rows() == [(1,), (2,), (3,)]
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    loop.close()


def test_the_head_is_idle_so_that_event_time_follows_the_other_inputs() -> None:
    loop = Loop("idle")
    loop.poll()
    loop.poll()
    assert loop.head.output.elements == [IDLE]
    loop.close()


def test_the_head_ends_when_nothing_came_back_for_the_waiting_time() -> None:
    loop = Loop("wait", wait_ms=100)
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    loop.head.advance_processing_time(60)
    loop.tail.push({"x": [1]})
    assert loop.poll() is InputStatus.MORE_AVAILABLE
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    loop.head.advance_processing_time(99)
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    woken = loop.woken
    loop.head.advance_processing_time(1)
    assert loop.woken == woken + 1
    assert loop.poll() is InputStatus.END_OF_INPUT
    loop.close()


def test_rows_that_come_while_the_wait_ends_are_not_lost() -> None:
    loop = Loop("race", wait_ms=100)
    loop.poll()
    loop.head.advance_processing_time(100)
    loop.tail.push({"x": [1]})
    assert loop.poll() is InputStatus.MORE_AVAILABLE
    assert loop.head.rows() == [(1,)]
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    loop.close()


def test_rows_that_come_after_the_end_are_an_error() -> None:
    loop = Loop("late", wait_ms=100)
    loop.poll()
    loop.head.advance_processing_time(100)
    assert loop.poll() is InputStatus.END_OF_INPUT
    with pytest.raises(DataError, match="2 rows came back after the iteration had ended"):
        loop.tail.push({"x": [1, 2]})
    loop.close()


def test_without_a_waiting_time_the_head_ends_only_when_stopped() -> None:
    loop = Loop("endless", wait_ms=0)
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    loop.head.advance_processing_time(10_000_000)
    assert loop.poll() is InputStatus.NOTHING_AVAILABLE
    loop.tail.push({"x": [1]})
    loop.head.operator.stop(drain=True)
    assert loop.poll() is InputStatus.MORE_AVAILABLE
    assert loop.poll() is InputStatus.END_OF_INPUT
    loop.close()


def test_the_tail_swallows_watermarks_and_idleness() -> None:
    loop = Loop("swallow")
    loop.tail.watermark(5)
    loop.tail.operator.process_status(IDLE)
    assert loop.tail.output.elements == []
    loop.close()


def test_rows_in_the_circle_are_in_no_savepoint_so_it_is_refused() -> None:
    loop = Loop("savepoint")
    loop.tail.push({"x": [1]})
    for end in (loop.head, loop.tail):
        with pytest.raises(UnsupportedPlanError, match="cannot be checkpointed"):
            end.operator.snapshot_state(1)
    assert loop.poll() is InputStatus.MORE_AVAILABLE, "the job goes on"
    loop.close()


def test_a_tail_whose_head_is_in_another_process_says_so_instead_of_losing_rows() -> None:
    tail = OperatorHarness(IterationTailFactory("apart"), schema=SCHEMA)
    tail.push({"x": [1, 2]})
    with pytest.raises(UnsupportedPlanError, match=r"2 rows were fed back, but the head .* in another process"):
        tail.end_input()
    tail.close()
    loop = Loop("together")
    loop.tail.push({"x": [1]})
    loop.tail.end_input()
    loop.close()


def test_iterations_and_subtasks_do_not_mix() -> None:
    loops = [Loop("one"), Loop("one", subtask=1), Loop("two")]
    for number, loop in enumerate(loops):
        loop.tail.push({"x": [number]})
    for number, loop in enumerate(loops):
        loop.poll()
        assert loop.head.rows() == [(number,)]
        loop.close()


def test_a_restarted_iteration_does_not_see_rows_of_the_run_before() -> None:
    first = Loop("again")
    first.tail.push({"x": [1]})
    first.close()
    second = Loop("again")
    assert second.poll() is InputStatus.NOTHING_AVAILABLE
    assert second.head.rows() == []
    second.close()


def test_checkpointing_is_refused() -> None:
    harness = OperatorHarness(IterationHeadFactory("ckpt", 1), checkpointing=True, open=False)
    with pytest.raises(UnsupportedPlanError, match="an iteration cannot be checkpointed"):
        harness.start()
    harness.close()


def test_a_head_has_no_inputs() -> None:
    loop = Loop("inputs")
    with pytest.raises(InternalError, match="has no inputs"):
        loop.head.push({"x": [1]})
    loop.close()


def test_closing_twice_or_before_setup_is_harmless() -> None:
    IterationHead(IterationHeadFactory("never", 1)).close()
    loop = Loop("twice")
    loop.close()
    loop.head.operator.close()
