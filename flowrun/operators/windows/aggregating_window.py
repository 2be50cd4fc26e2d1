"""The operator of slice and session windows: the calls of an operator's contract around the open windows of one kind.

A batch goes one way through what the recipe put together: `arrive` (which rows count, and where in time they are), apart by how far the
windows of their keys had fired, `take` (late rows, partial results, store). Time comes from a `FiringClock` and goes to `advance`.

After a restore at another parallelism, keys may come from old subtasks whose windows had fired further than this subtask's. Until it
has caught up, their rows are judged by their old subtask's progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.elements import RecordBatch
from flowrun.core.semantics import TimeDomain
from flowrun.operators.base import AbstractOperator
from flowrun.operators.timed.assigners import Times
from flowrun.operators.timed.firing_clock import FiringClock
from flowrun.operators.windows.progress import PROGRESS, Progress
from flowrun.state.key_groups import key_groups_or_zero


class OpenWindows(Protocol):
    """The open windows of a subtask: what they hold of rows, and when they fire. For the subtask's thread.

    Attributes:
        fired: the time up to which they have fired, ms.
        sequence: arrival number of the next row.
        next_firing: the end of the window that fires next, ms; None: none is open.
    """

    fired: int
    sequence: int
    next_firing: int | None

    @property
    def keys(self) -> tuple[int, ...]:
        """Positions of the key columns in the rows that `arrive` gives."""
        ...

    def restore(self, restored: OperatorSnapshot, progress: Progress, fired: int) -> None:
        """Take back partial results; windows had fired as `progress` says, all of them up to `fired`."""
        ...

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """All partial results as they are now, in segments that are materialised later."""
        ...

    def arrive(self, batch: RecordBatch) -> tuple[RecordBatch, Times]:
        """(the rows that count, the place of each in time: whatever `take` wants, one value for each row or one for all)."""
        ...

    def take(self, rows: RecordBatch, places: Times, fired: int) -> None:
        """Put at least one row into its windows, those of its key having fired up to time `fired`. Drops late rows, updates results."""
        ...

    def advance(self, time: int) -> None:
        """Fire and clean up: this subtask's time is `time` now."""
        ...


MakeWindows: TypeAlias = Callable[[OperatorContext, Output, FiringClock], OpenWindows]


class AggregatingWindowOperator(AbstractOperator):
    """Aggregates by key and window; see the module.

    Args:
        domain: which clock closes windows.
        make_windows: puts the open windows together, when the operator is set up.
    """

    def __init__(self, domain: TimeDomain, make_windows: MakeWindows) -> None:
        self._domain = domain
        self._make_windows = make_windows
        self._progress = Progress()

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, put the windows together."""
        super().setup(context, output)
        # a window fires when the clock reaches its end, which is its last time + 1
        self._clock = FiringClock(self._domain, context, self._advance, lambda: self._windows.next_firing, behind_ms=1)
        self._windows = self._make_windows(context, output, self._clock)
        self._clock.show_next_firing()

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back open windows; those that the old subtask of a key had fired do not fire again for it."""
        if restored is None:
            return
        self._progress = Progress.read(restored).within(self.context.key_groups)
        fired = self._progress.most if self._clock.is_processing else self._progress.least
        self._windows.restore(restored, self._progress, fired)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """References to partial results, and how far windows have fired."""
        progress = self._progress.advanced(self.context.key_groups, self._windows.fired, self._windows.sequence)
        return OperatorSnapshot(operator={PROGRESS: progress.as_state()}, segmented=self._windows.snapshot())

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Put rows into their windows; drop late ones, update fired windows within the allowed lateness."""
        rows, places = self._windows.arrive(batch)
        if rows.num_rows == 0:
            return
        for part, own, fired in self._by_progress(rows, places):
            self._windows.take(part, own, fired)
        self._clock.rearm()

    def _by_progress(self, rows: RecordBatch, places: Times) -> Iterator[tuple[RecordBatch, Times, int]]:
        """The rows apart for each time up to which windows of their keys had fired."""
        fired_here = self._windows.fired
        if self._progress.most <= fired_here:
            yield rows, places, fired_here
            return
        count = rows.num_rows
        places = np.broadcast_to(places, count)
        keys = [rows.columns.column(k) for k in self._windows.keys]
        groups = key_groups_or_zero(keys, count, self.context.max_parallelism)
        reached = np.maximum(self._progress.fired_of(groups), fired_here)
        for fired in np.unique(reached).tolist():
            chosen = reached == fired
            yield rows.filter(pa.array(chosen)), places[chosen], fired

    # ---- time

    def open(self) -> None:
        """Wait for the first of the restored windows."""
        self._clock.rearm()

    def on_watermark(self, timestamp: int) -> None:
        """Fire the windows that the watermark has passed."""
        self._clock.on_watermark(timestamp)

    def finish(self) -> None:
        """Fire what processing time has left open at the regular end of bounded input."""
        self._clock.finish(self.current_watermark)

    def close(self) -> None:
        """Wait for no window any more."""
        self._clock.close()

    def _advance(self, time: int) -> None:
        self._windows.advance(time)
