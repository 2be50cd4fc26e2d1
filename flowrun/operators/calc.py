"""Filter and projection in one operator: the workhorse between sources, windows and sinks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.functions import ColumnsFunction, ColumnsKernel, MaskKernel, PredicateFunction
from flowrun.api.operator import ChainingStrategy
from flowrun.api.sink import RowCheck
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, RowErrors, RowFault
from flowrun.errors import DataError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import describe_row, evaluate
from flowrun.operators.row_failures import RowFailures, without_nulls
from flowrun.operators.sink_check import SinkCheck


@record
class CalcFactory:
    """Makes operators that keep the rows of which `condition` is true, then compute `projection` over them.

    Rows keep their event times and kinds. Without either the rows pass unchanged.

    Attributes:
        errors: what becomes of rows of which an expression fails.
        required: positions of columns that must not be NULL; rows where one is are treated as `errors` says.
        fault: what such rows are called.
        writes: of rows that the sink behind cannot write, the same holds; None: it is not looked at.
    """

    condition: PredicateFunction | None = None
    projection: ColumnsFunction | None = None
    name: str = "calc"
    errors: RowErrors = FAIL
    required: tuple[int, ...] = ()
    fault: RowFault = RowFault.NULL_VALUE
    writes: SinkCheck | None = None

    @property
    def chaining(self) -> ChainingStrategy:
        """Joins any chain."""
        return ChainingStrategy.ALWAYS

    def create(self) -> _Calc:
        """A new operator."""
        return _Calc(self)


class _Calc(AbstractOperator):
    """Row numbers in errors refer to the input batch, not to the rows that the filter kept."""

    def __init__(self, factory: CalcFactory) -> None:
        self._factory = factory
        self._mask: MaskKernel | None = None
        self._project: ColumnsKernel | None = None
        self._failures: RowFailures | None = None
        self._check: RowCheck | None = None

    def open(self) -> None:
        """Compile the expressions."""
        factory = self._factory
        self._failures = RowFailures(factory.errors, self.context, self.output)
        self._check = None if factory.writes is None else factory.writes.create()
        self._mask = None if factory.condition is None else factory.condition.compile()
        self._project = None if factory.projection is None else factory.projection.compile()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Filter, project, send; nothing is sent when no row is left."""
        assert self._failures is not None
        if self._factory.required:
            batch = self._with_values(batch, self._failures)
            if batch.num_rows == 0:
                return
        if self._check is None:
            self._compute(batch, self._failures)
            return
        for writable, _ in self._failures.survivors(batch, RowFault.ENCODING, self._look):
            self._compute(writable, self._failures)

    def _look(self, batch: RecordBatch) -> None:
        assert self._check is not None
        self._check(batch.columns)

    def _compute(self, batch: RecordBatch, failures: RowFailures) -> None:
        for _, computed in failures.survivors(batch, RowFault.EXPRESSION, self._computed):
            if computed is not None:
                self.output.emit(computed)

    def _with_values(self, batch: RecordBatch, failures: RowFailures) -> RecordBatch:
        required = self._factory.required
        valid = without_nulls(batch.columns, required)
        if valid is None:
            return batch
        names = [batch.columns.schema.names[i] for i in required]

        def reason(row: pa.RecordBatch) -> str:
            missing = next(n for n, i in zip(names, required, strict=True) if row.column(i).null_count)
            return f"column '{missing}' is NULL in {describe_row(row, 0)}"

        failures.leave_out(batch.filter(pa.array(~valid)), self._factory.fault, reason)
        return batch.filter(pa.array(valid))

    def _computed(self, batch: RecordBatch) -> RecordBatch | None:
        """The rows that come out of a batch; None if there are none."""
        mask: pa.BooleanArray | None = None
        kept = batch
        if self._mask is not None:
            mask = evaluate(self._mask, batch.columns, f"filter of '{self._factory.name}'")
            count = mask.true_count
            if count == 0:
                return None
            if count < batch.num_rows:
                kept = batch.filter(mask)
            else:
                mask = None
        if self._project is not None:
            kept = kept.with_columns(self._projected(kept.columns, mask))
        return kept

    def _projected(self, columns: pa.RecordBatch, mask: pa.BooleanArray | None) -> pa.RecordBatch:
        assert self._project is not None
        try:
            return evaluate(self._project, columns, f"projection of '{self._factory.name}'")
        except DataError as error:
            if mask is not None and error.row is not None:
                error.row = int(np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))[error.row])
            raise
