"""Split: one stream into named branches by predicates, each a side output."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.functions import MaskKernel
from flowrun.api.operator import OutputTag
from flowrun.core.elements import RecordBatch
from flowrun.core.row_errors import RowFault
from flowrun.operators.data_errors import evaluate
from flowrun.operators.factories import SplitFactory
from flowrun.operators.row_failures import RowOperator


class SplitOperator(RowOperator):
    """Sends rows to the branches whose predicates are true."""

    def __init__(self, factory: SplitFactory) -> None:
        super().__init__(factory.errors)
        self._factory = factory
        self._kernels: tuple[tuple[OutputTag, MaskKernel, str], ...] = ()

    def open(self) -> None:
        """Compile the predicates."""
        super().open()
        self._kernels = tuple(
            (tag, predicate.compile(), f"branch '{tag.name}' of '{self._factory.name}'")
            for tag, predicate in self._factory.branches
        )

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows to their branches, in the declared order, then the rest to the main output."""
        # All predicates first: when one fails, no branch has received rows of this batch.
        for rows, masks in self.failures.survivors(batch, RowFault.EXPRESSION, self._masks):
            self._send(rows, masks)

    def _masks(self, batch: RecordBatch) -> list[tuple[OutputTag, pa.BooleanArray]]:
        return [(tag, evaluate(kernel, batch.columns, place)) for tag, kernel, place in self._kernels]

    def _send(self, batch: RecordBatch, masks: list[tuple[OutputTag, pa.BooleanArray]]) -> None:
        rest: pa.BooleanArray | None = None
        for tag, mask in masks:
            count = mask.true_count
            if count == 0 and batch.watermarks is None:
                continue
            self.output.emit_side(tag, batch if count == batch.num_rows else batch.filter(mask))
            known = mask.fill_null(False) if mask.null_count else mask
            rest = pc.invert(known) if rest is None else pc.and_not(rest, known)
        if rest is None:
            self.output.emit(batch)
        elif rest.true_count or batch.watermarks is not None:
            self.output.emit(batch.filter(rest))
