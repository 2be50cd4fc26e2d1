"""A column's values as the rows' event times."""

from __future__ import annotations

from flowrun.api.operator import OperatorSpec
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import required_times


@record
class AssignTimeFactory(OperatorSpec):
    """Operators that take the TIMESTAMP or TIMESTAMP_LTZ column at `column` for the event time of rows; watermarks stay."""

    column: int
    name: str = "time"


class AssignTimeOperator(AbstractOperator):
    """Gives rows the event times of a column."""

    def __init__(self, factory: AssignTimeFactory) -> None:
        self._factory = factory

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows with their new event times."""
        times = required_times(batch.columns, self._factory.column, self._factory.name)
        self.output.emit(RecordBatch(batch.columns, times, batch.row_kinds))
