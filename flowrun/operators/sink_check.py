"""Whether a sink will be able to write rows: looked at before it, where rows that it cannot write are left out."""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.sink import RefusingSink, RowCheck, Sink
from flowrun.core.constraints import SinkConstraints
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.row_errors import RowFault
from flowrun.errors import DataError
from flowrun.operators.sink_constraints import ConstraintEnforcer


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
