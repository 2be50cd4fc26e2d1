"""What looks at rows before an operator that could not leave out those that it fails on: expressions, and users' aggregates."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from flowrun.api.aggregate import UserAggregate
from flowrun.api.functions import ColumnsFunction
from flowrun.api.sink import RowCheck
from flowrun.core.record import record
from flowrun.core.row_errors import RowFault
from flowrun.operators.aggregation.user_aggregates import UserFolding
from flowrun.operators.data_errors import evaluate


class RowTest(Protocol):
    """A picklable recipe for a check of rows."""

    @property
    def fault(self) -> RowFault:
        """What rows are called that do not pass."""
        ...

    def create(self) -> RowCheck | None:
        """The check, which raises DataError; None: all rows pass."""
        ...


@record
class ExpressionTest:
    """Rows of which an expression fails do not pass.

    Attributes:
        columns: the expressions; what they give is not used.
        name: of the operator behind, for messages.
    """

    columns: ColumnsFunction
    name: str

    @property
    def fault(self) -> RowFault:
        """An expression fails."""
        return RowFault.EXPRESSION

    def create(self) -> RowCheck:
        """Computes the expressions."""
        kernel = self.columns.compile()

        def check(rows: pa.RecordBatch) -> None:
            evaluate(kernel, rows, f"expressions of '{self.name}'")

        return check


@record
class AggregateTest:
    """Rows that a user's aggregate cannot take as the first of a group do not pass.

    Attributes:
        columns: the argument column of each aggregate; behind them its filters.
        aggregates: (the aggregate, position of its argument, position of its filter or None).
    """

    columns: ColumnsFunction
    aggregates: tuple[tuple[UserAggregate, int, int | None], ...]

    @property
    def fault(self) -> RowFault:
        """A user's function fails."""
        return RowFault.FUNCTION

    def create(self) -> RowCheck:
        """Loads the aggregates and calls them for each row."""
        kernel = self.columns.compile()
        foldings = [(UserFolding(user), argument, filter) for user, argument, filter in self.aggregates]

        def check(rows: pa.RecordBatch) -> None:
            columns = kernel(rows)
            for folding, argument, filter in foldings:
                values = columns.column(argument)
                folding.try_rows(values if filter is None else values.filter(columns.column(filter)))

        return check
