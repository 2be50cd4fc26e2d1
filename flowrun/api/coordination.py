"""How a task talks to the two operators that take part in job-wide coordination: sources (splits) and sinks (commits).

The task calls `connect` after `setup` and before `initialize_state`; every other call comes from the subtask's own thread. What
the task passes to `connect` never blocks and may be called from the subtask's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from flowrun.api.sink import Committable
from flowrun.api.source import Split


@runtime_checkable
class CoordinatedSource(Protocol):
    """A source operator whose splits are handed out by the job's one `SplitEnumerator`, on the job master's thread."""

    def connect(self, request_split: Callable[[], None]) -> None:
        """Receive the way to ask for a split. Each call is answered later by one `add_splits` or `notify_no_more_splits`.

        An unbounded enumerator that has nothing now leaves the request open and answers it once `discover` found a split.
        """
        ...

    def add_splits(self, splits: Sequence[Split]) -> None:
        """More to read; `emit_next` is polled again afterwards."""
        ...

    def notify_no_more_splits(self) -> None:
        """The enumerator is exhausted: END_OF_INPUT once all splits are read. May come more than once."""
        ...


@runtime_checkable
class CommittingSink(Protocol):
    """A sink operator whose committables are made visible by the job's one `Committer`, on the job master's thread.

    Call `submit` with what `SinkWriter.rolled` returned (while running, unbounded jobs without checkpointing) and with what
    `SinkWriter.prepare_commit` returned in `finish`. The job master commits the former at once and the latter when all
    tasks of the job have finished; whatever is not committed when the job fails or is cancelled is aborted.
    """

    def connect(self, submit: Callable[[Sequence[Committable]], None]) -> None:
        """Receive the way to hand committables over, in order."""
        ...
