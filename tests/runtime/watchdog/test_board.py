"""What subtasks note on the activity board can be read through its file."""

from __future__ import annotations

import threading
from contextlib import closing

from flowrun.runtime.watchdog.board import ActivityBoard, BoardReader, SubtaskNames

NAMES = [
    SubtaskNames("Source: á -> f (1/2)", ("Source: á", "f")),
    SubtaskNames("Source: á -> f (2/2)", ("Source: á", "f")),
]


def test_a_reader_sees_which_operator_each_subtask_is_in() -> None:
    with closing(ActivityBoard(NAMES)) as board:
        reader = BoardReader(board.descriptor)
        first, second = board.slot(0), board.slot(1)
        first.begin()
        first.call()
        first.enter(1)
        seen = reader.subtasks()
        assert [s.names for s in seen] == NAMES
        assert (seen[0].operator, seen[0].thread, seen[0].calls) == ("f", threading.get_native_id(), 1)
        assert (seen[1].operator, seen[1].thread, seen[1].is_busy) == (None, 0, False)
        second.begin()
        second.call(1)
        first.rest()
        assert [s.operator for s in reader.subtasks()] == [None, "f"]
        assert [s.is_busy for s in reader.subtasks()] == [False, True]


def test_a_subtask_that_waits_is_not_busy() -> None:
    with closing(ActivityBoard(NAMES)) as board:
        slot, reader = board.slot(0), BoardReader(board.descriptor)
        slot.begin()
        slot.call()
        slot.wait(True)
        assert not reader.subtasks()[0].is_busy
        slot.wait(False)
        assert reader.subtasks()[0].is_busy
        slot.end()
        assert not reader.subtasks()[0].is_busy


def test_the_time_of_a_cancellation_is_kept_until_the_next_execution_or_until_it_is_known() -> None:
    with closing(ActivityBoard(NAMES)) as board:
        slot, reader = board.slot(0), BoardReader(board.descriptor)
        slot.cancel()
        at = reader.subtasks()[0].cancelled_ns
        slot.cancel()
        assert reader.subtasks()[0].cancelled_ns == at > 0
        slot.give_up()
        assert reader.subtasks()[0].cancelled_ns == 0
        slot.cancel()
        slot.begin()
        assert reader.subtasks()[0].cancelled_ns == 0


def test_answers_are_counted() -> None:
    with closing(ActivityBoard([])) as board:
        reader = BoardReader(board.descriptor)
        board.answer()
        board.answer()
        assert reader.answered == 2
        assert reader.subtasks() == []
