"""The watermark of the operator as a column behind its rows, which never goes back, also not from one run to the next.

A run that goes on from a snapshot may have rows in flight with watermarks of the run before, and new subtasks begin without one. What
they send must not seem to have come before those rows, so each begins with the highest watermark of all subtasks of the run before.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorSpec
from flowrun.api.state import OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.base import AbstractOperator

_REACHED = "reached"
"""Name of the operator state, and of its column: the watermark of a subtask, ms."""


@record
class WatermarkColumnFactory(OperatorSpec):
    """Operators that put a BIGINT column behind the others: the watermark that was there when the row came, ms.

    It must be that of the operator that sends the rows, so it joins any chain.

    Attributes:
        schema: of the rows that are sent.
    """

    schema: Schema


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
