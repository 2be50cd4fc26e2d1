"""Failures that come again at the same row or in the same way: restarting such a job would never end.

Pure. A restart reads the same rows again, so whatever is wrong with one of them, or with the code that meets it, comes back with the same
words: the message of a `DataError` names the row and what it holds. A process that compiles another job will do so again, too. Failures of
the outside world (files, networks, services) may go away by themselves and are left to the restart strategy.
"""

from __future__ import annotations

import re

from flowrun.errors import DataError, FlowrunError, RefusedError, is_from_outside
from flowrun.runtime.jobmaster.scheduler_events import LocatedFailure
from flowrun.runtime.messages import TaskFailure

SAME_FAILURES = 3
"""So many failures at the same place are the end of the job."""
_CHECKPOINTS_BETWEEN = 2
"""A restart begins at the last checkpoint, so before it comes to the same row there is hardly time for another one, which may also hold
nothing new. More checkpoints than this between two failures mean that the job went on beyond the place of the first."""
_PLACE_IN_BATCH = re.compile(r"\b(row|batch has) \d+")


class RepeatedFailures:
    """Counts the failures of one job by what failed. Owned by the job master's thread."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str | None, str, str], tuple[int, int]] = {}
        self._checkpoints = 0

    def checkpoint_completed(self) -> None:
        """There is a newer checkpoint to go back to."""
        self._checkpoints += 1

    def add(self, failure: TaskFailure) -> int:
        """A failure: how often the same came by now without progress between; 0: one that says nothing about the next.

        >>> failures, poison = RepeatedFailures(), TaskFailure(DataError("row 3 {k: 1} is bad"), "filter")
        >>> [failures.add(poison), failures.add(TaskFailure(OSError("gone"))), failures.add(poison)]
        [1, 0, 2]
        """
        if not _comes_again(failure.error):
            return 0
        # Which row of its batch it is, and which subtask reads it, differs from attempt to attempt.
        text = _PLACE_IN_BATCH.sub(r"\1", str(getattr(failure.error, "message", failure.error)))
        same = (failure.operator, type(failure.error).__name__, text)
        count, at = self._counts.get(same, (0, self._checkpoints))
        if self._checkpoints - at > _CHECKPOINTS_BETWEEN:
            count = 0
        self._counts[same] = (count + 1, self._checkpoints)
        return count + 1


def _comes_again(error: BaseException) -> bool:
    """Whether rows or code are to blame, or a process that has other code or variables than the job."""
    if isinstance(error, RefusedError):
        return True
    if is_from_outside(error):
        return False
    return isinstance(error, DataError) or not isinstance(error, FlowrunError)


def is_same(one: LocatedFailure, other: LocatedFailure) -> bool:
    """Whether both tell of one failure: an attempt fails once, and from another process its error comes as a new object each time."""
    if one.vertex is None or other.vertex is None:
        return one.failure.error is other.failure.error
    return one.vertex == other.vertex


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and its causes: their frames hold the operators and rows of a task that is gone."""
    seen: set[int] = set()
    following: list[BaseException] = [error]
    while following:
        current = following.pop()
        if id(current) not in seen:
            seen.add(id(current))
            current.__traceback__ = None
            following += [e for e in (current.__cause__, current.__context__) if e is not None]
