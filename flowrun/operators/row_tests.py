"""What looks at rows before an operator that could not leave out those that it fails on: expressions, users' aggregates, sinks."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from flowrun.api.aggregate import UserAggregate
from flowrun.api.functions import ColumnsFunction
from flowrun.api.sink import RefusingSink, RowCheck, Sink
from flowrun.core.constraints import SinkConstraints
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.row_errors import RowFault
from flowrun.errors import DataError
from flowrun.operators.aggregation.user_aggregates import UserFolding
from flowrun.operators.data_errors import evaluate
from flowrun.operators.sink_constraints import ConstraintEnforcer


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


@record
class SinkCheck:
    """A picklable recipe for what looks at the rows of a sink; a `RowTest`.

    Attributes:
        sink: that will get them.
        constraints: that it enforces.
        place: what messages call it, e.g. `sink 'out'`.
    """

    sink: Sink
    constraints: SinkConstraints
    place: str

    @property
    def fault(self) -> RowFault:
        """The sink cannot write the row."""
        return RowFault.ENCODING

    def create(self) -> RowCheck | None:
        """Raises DataError where the sink would; None: it writes whatever comes, but for NULL in NOT NULL columns."""
        check = self.sink.create_check() if isinstance(self.sink, RefusingSink) else None
        enforcer = ConstraintEnforcer(self.sink.schema, self.constraints, self.place)
        if check is None and not enforcer.refuses:
            return None
        place = self.place

        def look(columns: pa.RecordBatch) -> None:
            written, _ = enforcer.enforced(RecordBatch(columns))
            if check is None or not written.num_rows:
                return
            try:
                check(written.columns)
            except DataError as error:
                raise DataError(f"{place}: {error.message}", row=error.row, hint=error.hint) from error

        return look
