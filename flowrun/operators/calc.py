"""Filter and projection in one operator: the workhorse between sources, windows and sinks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.functions import ColumnsFunction, ColumnsKernel, MaskKernel, PredicateFunction
from flowrun.api.operator import ChainingStrategy
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.errors import DataError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import evaluate


@record
class CalcFactory:
    """Makes operators that keep the rows of which `condition` is true, then compute `projection` over them.

    Rows keep their event times and kinds. Without either the rows pass unchanged.
    """

    condition: PredicateFunction | None = None
    projection: ColumnsFunction | None = None
    name: str = "calc"

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

    def open(self) -> None:
        """Compile the expressions."""
        factory = self._factory
        self._mask = None if factory.condition is None else factory.condition.compile()
        self._project = None if factory.projection is None else factory.projection.compile()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Filter, project, send; nothing is sent when no row is left."""
        mask: pa.BooleanArray | None = None
        kept = batch
        if self._mask is not None:
            mask = evaluate(self._mask, batch.columns, f"filter of '{self._factory.name}'")
            count = mask.true_count
            if count == 0:
                return
            if count < batch.num_rows:
                kept = batch.filter(mask)
            else:
                mask = None
        if self._project is not None:
            kept = kept.with_columns(self._projected(kept.columns, mask))
        self.output.emit(kept)

    def _projected(self, columns: pa.RecordBatch, mask: pa.BooleanArray | None) -> pa.RecordBatch:
        assert self._project is not None
        try:
            return evaluate(self._project, columns, f"projection of '{self._factory.name}'")
        except DataError as error:
            if mask is not None and error.row is not None:
                error.row = int(np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))[error.row])
            raise
