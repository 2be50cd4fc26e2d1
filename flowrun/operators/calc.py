"""Filter and projection in one operator: the workhorse between sources, windows and sinks."""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.functions import ColumnsKernel, MaskKernel
from flowrun.api.operator import TakesSelections
from flowrun.api.sink import RowCheck
from flowrun.core.elements import RecordBatch
from flowrun.core.provided import provides
from flowrun.core.row_errors import RowFault
from flowrun.core.selected_rows import SelectedRows, positions_of
from flowrun.errors import DataError
from flowrun.operators.data_errors import describe_row, evaluate
from flowrun.operators.factories import CalcFactory
from flowrun.operators.row_failures import RowFailures, RowOperator, without_nulls


class CalcOperator(RowOperator):
    """Row numbers in errors refer to the input batch, not to the rows that the filter kept."""

    def __init__(self, factory: CalcFactory) -> None:
        super().__init__(factory.errors)
        self._factory = factory
        self._mask: MaskKernel | None = None
        self._project: ColumnsKernel | None = None
        self._selecting: TakesSelections | None = None
        """The output, if it may be given rows that are not gathered."""
        self._checks: list[tuple[RowFault, RowCheck]] = []

    def open(self) -> None:
        """Compile the expressions."""
        factory = self._factory
        super().open()
        created = [(test.fault, test.create()) for test in factory.tests]
        self._checks = [(fault, check) for fault, check in created if check is not None]
        self._mask = None if factory.condition is None else factory.condition.compile()
        self._project = None if factory.projection is None else factory.projection.compile()
        if (factory.projection is None or factory.projection.never_fails) and provides(self.output, TakesSelections):
            self._selecting = self.output

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Filter, project, send; nothing is sent when no row is left."""
        if self._factory.required:
            batch = self._with_values(batch, self.failures)
        if batch.num_rows == 0:
            if batch.watermarks is not None:
                self.output.emit(self._nothing(batch))
            return
        for passed in self._passed(batch, self.failures):
            self._compute(passed, self.failures)

    def _passed(self, batch: RecordBatch, failures: RowFailures) -> list[RecordBatch]:
        """The rows that pass all tests, in pieces."""
        pieces = [batch]
        for fault, check in self._checks:

            def look(rows: RecordBatch, check: RowCheck = check) -> None:
                check(rows.columns)

            pieces = [rows for piece in pieces for rows, _ in failures.survivors(piece, fault, look)]
        return pieces

    def process_selected(self, selected: SelectedRows) -> None:
        """As `process_batch`; the rows are gathered unless this operator does nothing but put their columns in another order."""
        if self._selecting is not None and self._mask is None and not (self._factory.required or self._checks):
            self._selecting.emit_selected(self._with_columns_in_place(selected))
        else:
            self.process_batch(selected.rows())

    def _compute(self, batch: RecordBatch, failures: RowFailures) -> None:
        for _, computed in failures.survivors(batch, RowFault.EXPRESSION, self._computed):
            if isinstance(computed, RecordBatch):
                self.output.emit(computed)
            elif computed is not None:
                assert self._selecting is not None
                self._selecting.emit_selected(computed)

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

    def _computed(self, batch: RecordBatch) -> RecordBatch | SelectedRows | None:
        """The rows that come out of a batch, not gathered yet if the output takes them so; None if there are none."""
        mask: pa.BooleanArray | None = None
        kept = batch
        if self._mask is not None:
            mask = evaluate(self._mask, batch.columns, f"filter of '{self._factory.name}'")
            count = mask.true_count
            if count == 0:
                return None if batch.watermarks is None else self._nothing(batch)
            if count < batch.num_rows:
                if self._selecting is not None and batch.watermarks is None:
                    return self._with_columns_in_place(SelectedRows(batch, positions_of(mask)))
                kept = batch.filter(mask)
            else:
                mask = None
        if self._project is not None:
            kept = kept.with_columns(self._projected(kept.columns, mask))
        return kept

    def _with_columns_in_place(self, selected: SelectedRows) -> SelectedRows:
        """Projected; the projection never fails, whatever the rows hold that were not chosen."""
        if self._project is None:
            return selected
        return selected.with_columns(self._projected(selected.batch.columns, None))

    def _nothing(self, batch: RecordBatch) -> RecordBatch:
        projection = self._factory.projection
        return batch.only_watermarks(batch.columns.schema if projection is None else projection.schema.arrow)

    def _projected(self, columns: pa.RecordBatch, mask: pa.BooleanArray | None) -> pa.RecordBatch:
        assert self._project is not None
        try:
            return evaluate(self._project, columns, f"projection of '{self._factory.name}'")
        except DataError as error:
            if mask is not None and error.row is not None:
                error.row = positions_of(mask)[error.row].as_py()
            raise
