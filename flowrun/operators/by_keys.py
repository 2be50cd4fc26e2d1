"""Batch mode's form of operators that know nothing of it: rows of some keys, all there are of them, have an operator of their own.

Its inputs are sorted by key. When those of some keys are complete, the operator over them sees event time end, then its inputs, and is
closed; the next keys begin with a new one. So state is never that of more keys than come together in a batch, and nothing has to be
removed from it. What the operators send goes on at once; the watermark at the end is that of all keys.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import GivesOneRow, OperatorContext, OperatorRecipe, Output, OutputTag, StreamOperator
from flowrun.core.elements import (
    MAX_WATERMARK,
    LatencyMarker,
    RecordBatch,
    RowKind,
    Watermark,
    WatermarkStatus,
    concat_batches,
)
from flowrun.operators.base import AbstractOperator
from flowrun.operators.implementations import create_operator


class OperatorByKeys(AbstractOperator):
    """An operator for one range of keys after the other.

    Args:
        recipe: of the operators.
        inputs: how many inputs they have.
    """

    def __init__(self, recipe: OperatorRecipe, inputs: int) -> None:
        self.inputs = inputs
        self._recipe = recipe
        self._result_keys = recipe.result_keys if isinstance(recipe, GivesOneRow) else None
        self._current: StreamOperator | None = None
        self._batches = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        self._results = _Results(output)

    @property
    def current(self) -> StreamOperator | None:
        """The operator over the present keys; None between keys."""
        return self._current

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Rows of the present keys, or of new ones."""
        if self._current is None:
            self._current = create_operator(self._recipe)
            self._batches = 0
            self._current.setup(self.context, self._results)
            self._current.initialize_state(None)
            self._current.open()
        self._batches += 1
        # Of one batch an operator that keeps a row a key sends it once; of several it would send what the row was in between, too.
        self._results.holds = self._result_keys is not None
        self._current.process_batch(batch, input_index)

    def end_keys(self) -> None:
        """The present keys are complete."""
        current = self._current
        if current is None:
            return
        for index in range(self.inputs):
            current.process_watermark(MAX_WATERMARK, index)
            current.end_input(index)
        current.finish()
        self._current = None
        current.close()
        self._send()

    def close(self) -> None:
        """Close what is open."""
        if self._current is not None:
            self._current.close()

    def _send(self) -> None:
        """Send the rows that were held: of each key the last one, as an insert."""
        held, self._results.held, self._results.holds = self._results.held, [], False
        if not held or self._result_keys is None:
            return
        changes = concat_batches(held)
        if self._batches > 1:
            changes = final_rows(changes, self._result_keys)
        if changes.num_rows:
            self.output.emit(changes)


def final_rows(changes: RecordBatch, keys: tuple[int, ...]) -> RecordBatch:
    """What changes of rows by key amount to: the last row of each key, unless it is taken back; in the order of the keys' last changes.

    >>> rows = pa.record_batch({"k": [1, 1, 2, 1, 2], "n": [1, 1, 5, 2, 5]})
    >>> kinds = pa.array([0, 1, 0, 2, 3], pa.int8())
    >>> final_rows(RecordBatch(rows, None, kinds), (0,)).columns.to_pylist()
    [{'k': 1, 'n': 2}]
    """
    if changes.row_kinds is None:
        return changes
    columns = [changes.columns.column(k) for k in keys]
    names = [f"k{i}" for i in range(len(columns))]
    table = pa.Table.from_arrays([*columns, pa.array(np.arange(changes.num_rows))], names=[*names, "row"])
    last = np.sort(table.group_by(names).aggregate([("row", "max")]).column("row_max").to_numpy())
    kinds = changes.row_kinds.to_numpy()[last]
    kept = last[(kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)]
    found = changes.take(pa.array(kept))
    return RecordBatch(found.columns, found.timestamps)


class _Results:
    """The output of the operators: their rows go on, their ends do not. Rows of the main output may be held."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.holds = False
        self.held: list[RecordBatch] = []

    def emit(self, batch: RecordBatch) -> None:
        if not self.holds:
            self._output.emit(batch)
        elif batch.num_rows:
            self.held.append(batch)

    def emit_side(self, tag: OutputTag, batch: RecordBatch) -> None:
        self._output.emit_side(tag, batch)

    def emit_watermark(self, watermark: Watermark) -> None:
        """Nothing: event time has ended for some keys only."""

    def emit_status(self, status: WatermarkStatus) -> None:
        """Nothing: there are no idle inputs in batch mode."""

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        self._output.emit_latency_marker(marker)
