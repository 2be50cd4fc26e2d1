"""The watermark of the operator as a column behind its rows (Apache Flink's `WatermarkTimestampAssigner`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import ChainingStrategy
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.base import AbstractOperator


@record
class WatermarkColumnFactory:
    """Makes operators that put a BIGINT column behind the others: the watermark that was there when the row came, ms.

    Attributes:
        schema: of the rows that are sent.
    """

    schema: Schema

    @property
    def chaining(self) -> ChainingStrategy:
        """Joins any chain: the watermark must be that of the operator that sends the rows."""
        return ChainingStrategy.ALWAYS

    def create(self) -> _WatermarkColumn:
        """A new operator."""
        return _WatermarkColumn(self)


class _WatermarkColumn(AbstractOperator):
    def __init__(self, factory: WatermarkColumnFactory) -> None:
        self._schema = factory.schema.arrow

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows with the column."""
        marks = pa.array(np.full(batch.num_rows, self.current_watermark, np.int64))
        columns = pa.RecordBatch.from_arrays([*batch.columns.columns, marks], schema=self._schema)
        self.output.emit(RecordBatch(columns, batch.timestamps, batch.row_kinds))
