"""A column's values as the rows' event times, and the watermark as a column.

The watermark as a column never goes back, also not from one run to the next. A run that goes on from a snapshot may have rows in flight
with watermarks of the run before, and new subtasks begin without one. What they send must not seem to have come before those rows, so
each begins with the highest watermark of all subtasks of the run before.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import required_times
from flowrun.operators.rows.factories import AssignTimeFactory, WatermarkColumnFactory

_REACHED = "reached"
"""Name of the operator state, and of its column: the watermark of a subtask, ms."""


class WatermarkColumnOperator(AbstractOperator):
    """Puts the watermark behind the columns of rows."""

    def __init__(self, factory: WatermarkColumnFactory) -> None:
        self._schema = factory.schema.arrow
        self._reached = MIN_TIMESTAMP

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Begin with the highest watermark of all subtasks."""
        if restored is not None and _REACHED in restored.operator:
            self._reached = max([MIN_TIMESTAMP, *restored.operator[_REACHED].rows.column(_REACHED).to_pylist()])

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The watermark, for every new subtask."""
        reached = pa.table({_REACHED: pa.array([self._reached], pa.int64())})
        return OperatorSnapshot(operator={_REACHED: OperatorState(reached, Redistribution.UNION)})

    def on_watermark(self, timestamp: int) -> None:
        """What comes from now on has it. The one of the end is none: rows behind it would wait for the end of all other senders."""
        if timestamp != MAX_TIMESTAMP:
            self._reached = max(self._reached, timestamp)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows with the column."""
        marks = pa.array(np.full(batch.num_rows, self._reached, np.int64))
        columns = pa.RecordBatch.from_arrays([*batch.columns.columns, marks], schema=self._schema)
        self.output.emit(RecordBatch(columns, batch.timestamps, batch.row_kinds))


class AssignTimeOperator(AbstractOperator):
    """Gives rows the event times of a column."""

    def __init__(self, factory: AssignTimeFactory) -> None:
        self._factory = factory

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows with their new event times."""
        times = required_times(batch.columns, self._factory.column, self._factory.name)
        self.output.emit(RecordBatch(batch.columns, times, batch.row_kinds))
