"""Every row once for each of several projections: what GROUPING SETS, CUBE and ROLLUP aggregate."""

from __future__ import annotations

from flowrun.api.functions import ColumnsFunction, ColumnsKernel
from flowrun.api.operator import OperatorSpec
from flowrun.core.elements import RecordBatch, concat_batches
from flowrun.core.record import record
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import evaluate

_TOGETHER = 64 * 1024


@record
class ExpandFactory(OperatorSpec):
    """Operators that send a batch once for each of `projections`, in that order: all rows of one, then all of the next.

    So the two halves of an update stay side by side. Rows keep their event times and kinds.
    """

    projections: tuple[ColumnsFunction, ...]
    name: str = "expand"


class ExpandOperator(AbstractOperator):
    """Sends every row once for each projection."""

    def __init__(self, factory: ExpandFactory) -> None:
        self._factory = factory
        self._kernels: tuple[ColumnsKernel, ...] = ()

    def open(self) -> None:
        """Compile the expressions."""
        self._kernels = tuple(p.compile() for p in self._factory.projections)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send each projection of the rows; few rows in one batch, as what follows works by batches."""
        place = f"projection of '{self._factory.name}'"
        made = [batch.with_columns(evaluate(k, batch.columns, place)) for k in self._kernels]
        if batch.num_rows * len(made) <= _TOGETHER:
            made = [concat_batches(made)]
        for expanded in made:
            self.output.emit(expanded)
