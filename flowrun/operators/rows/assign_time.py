"""A column's values as the rows' event times."""

from __future__ import annotations

from flowrun.api.operator import ChainingStrategy
from flowrun.core.elements import RecordBatch, timestamps_from_column
from flowrun.core.record import record
from flowrun.errors import DataError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import describe_row, first_null


@record
class AssignTimeFactory:
    """Makes operators that take the TIMESTAMP or TIMESTAMP_LTZ column at `column` for the event time of rows; watermarks stay."""

    column: int
    name: str = "time"

    @property
    def chaining(self) -> ChainingStrategy:
        """Joins any chain."""
        return ChainingStrategy.ALWAYS

    def create(self) -> _AssignTime:
        """A new operator."""
        return _AssignTime(self)


class _AssignTime(AbstractOperator):
    def __init__(self, factory: AssignTimeFactory) -> None:
        self._factory = factory

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows with their new event times."""
        times = timestamps_from_column(batch.columns.column(self._factory.column))
        if times.null_count:
            row = first_null(times)
            column = batch.columns.schema.names[self._factory.column]
            raise DataError(
                f"'{self._factory.name}': the time attribute '{column}' must not be NULL, but it is in row {row} "
                f"{describe_row(batch.columns, row)}",
                row=row,
                hint=f"drop such rows before: WHERE {column} IS NOT NULL",
            )
        self.output.emit(RecordBatch(batch.columns, times, batch.row_kinds))
