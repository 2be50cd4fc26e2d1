"""The common part of slice and session windows: how rows reach their windows, late or not, and what of time is state.

`_fired` is the time up to which this subtask's windows have fired. After a restore at another parallelism, keys may come from old
subtasks whose windows had fired further. Until this subtask has caught up, their rows are judged by their old subtask's progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.elements import MIN_TIMESTAMP, RecordBatch
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.base import AbstractOperator
from flowrun.operators.timed.assigners import Times
from flowrun.operators.timed.event_rows import LateRows, RowIntake
from flowrun.operators.timed.firing_clock import FiringClock, WindowTime
from flowrun.operators.windows.partials.partial_tables import PartialTables
from flowrun.operators.windows.progress import PROGRESS, Progress
from flowrun.state.key_groups import key_groups_or_zero

if TYPE_CHECKING:
    from flowrun.operators.windows.sessions.factory import SessionWindowFactory
    from flowrun.operators.windows.slices.factories import SliceWindowFactory


class AggregatingWindowOperator(AbstractOperator):
    """Keeps partial results of open windows and how far windows have fired.

    Subclasses implement `_process_rows`, `_restore_windows`, `_state`, `_plan_next` and `_advance`.
    """

    _factory: SliceWindowFactory | SessionWindowFactory

    def __init__(self, factory: SliceWindowFactory | SessionWindowFactory, bounds: tuple[str, ...]) -> None:
        self._processing = factory.domain is WindowTime.PROCESSING
        self._bounds = bounds
        self._factory = factory
        self._engine = AggregationEngine(factory.layout)
        self._lateness = 0 if self._processing else factory.allowed_lateness_ms
        self._sequence = 0
        self._fired = MIN_TIMESTAMP
        self._progress = Progress()
        self._next_firing: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._clock = FiringClock(factory.domain, context, self._advance, lambda: self._next_firing, behind_ms=1)
        self._intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, factory.time_column)
        self._late = LateRows(context, output, factory.late_tag)
        self._tables = PartialTables(self._engine, context.max_parallelism, self._bounds)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back open windows; those that the old subtask of a key had fired do not fire again for it."""
        if restored is None:
            return
        self._progress = Progress.read(restored).within(self.context.key_groups)
        self._sequence = self._progress.sequence
        self._fired = self._progress.most if self._processing else self._progress.least
        self._restore_windows(restored)
        self._plan_next()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """References to partial results, and how far windows have fired."""
        progress = self._progress.advanced(self.context.key_groups, self._fired, self._sequence)
        return OperatorSnapshot(operator={PROGRESS: progress.as_state()}, segmented=self._state())

    def _state(self) -> Mapping[str, SegmentedTable]:
        """All partial results as they are now, in segments that are materialised later."""
        raise NotImplementedError

    def _restore_windows(self, restored: OperatorSnapshot) -> None:
        """Take back partial results; progress is known by now."""
        raise NotImplementedError

    def open(self) -> None:
        """Wait for what was restored."""
        self._clock.rearm()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._clock.close()

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Put rows into their windows; drop late ones, update fired windows within the allowed lateness."""
        batch = self._intake.grouped_rows(batch)
        if batch.num_rows == 0:
            return
        if self._processing:
            now = self._clock.time_of_rows()
            self._process_rows(batch, self._placed(np.full(batch.num_rows, now, np.int64)), self._fired)
            self._clock.rearm()
        else:
            self._process_by_progress(batch, self._placed(self._intake.event_times(batch)), self._factory.keys)

    def _placed(self, times: Times) -> Times:
        """What `_process_rows` takes for the rows' times: they themselves, or one value for each or for all of them."""
        return times

    def _process_by_progress(self, batch: RecordBatch, places: Times, keys: Sequence[int]) -> None:
        """Take rows, apart for each time up to which windows of their keys had fired."""
        if self._progress.most <= self._fired:
            self._process_rows(batch, places, self._fired)
            return
        rows = batch.num_rows
        places = np.broadcast_to(places, rows)
        groups = key_groups_or_zero([batch.columns.column(k) for k in keys], rows, self.context.max_parallelism)
        reached = np.maximum(self._progress.fired_of(groups), self._fired)
        for fired in np.unique(reached).tolist():
            chosen = reached == fired
            self._process_rows(batch.filter(pa.array(chosen)), places[chosen], fired)

    def _process_rows(self, batch: RecordBatch, places: Times, fired: int) -> None:
        """Take rows whose keys' windows have fired up to time `fired`."""
        raise NotImplementedError

    # ---- time

    def on_watermark(self, timestamp: int) -> None:
        """Fire the windows that the watermark has passed."""
        self._clock.on_watermark(timestamp)

    def finish(self) -> None:
        """Fire what processing time has left open at the regular end of the input."""
        self._clock.finish(self.current_watermark)

    def _advance(self, time: int) -> None:
        """Fire and clean up: this subtask's time is `time` now."""
        raise NotImplementedError

    def _plan_next(self) -> None:
        """Compute `_next_firing` (the end of the next window) and whatever else is due from what is stored."""
        raise NotImplementedError
