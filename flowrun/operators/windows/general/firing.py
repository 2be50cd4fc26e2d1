"""Results of the general window operator's windows: many firings are evaluated at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.window_function import Window
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.windows.functions.fired import (
    FiredWindows,
    WindowFunctionRunner,
    Windows,
    function_results,
    newest_times,
)
from flowrun.operators.windows.general.contents import WindowContents
from flowrun.operators.windows.general.factories import GeneralWindowFactory
from flowrun.operators.windows.partials.cells import CellAggregator
from flowrun.operators.windows.results import keyed_results, result_batches

_EXPANDED_ROWS = 1024 * 1024


@record
class Firing:
    """A window as it was when it fired. Firings of one batch are ordered by row, then from the latest window to the earliest."""

    row: int
    slot: int
    window: Window
    positions: Integers


class FiringEvaluator:
    """Turns firings into result batches, many at once.

    Args:
        factory: of the operator.
        contents: the rows of windows.
        slots: the keys.
        runner: calls the window function, if there is one.
    """

    def __init__(
        self,
        factory: GeneralWindowFactory,
        contents: WindowContents,
        slots: KeySlots,
        runner: WindowFunctionRunner | None,
    ) -> None:
        self._factory = factory
        self._contents = contents
        self._slots = slots
        self._runner = runner
        self._aggregator = CellAggregator(factory.input_schema, factory.aggregates)

    def results(self, firings: Sequence[Firing], watermark: int) -> Iterator[RecordBatch]:
        """Result batches, in order; event time is `watermark`."""
        start = rows = 0
        for i, firing in enumerate(firings):
            if i > start and rows + len(firing.positions) > _EXPANDED_ROWS:
                yield from self._evaluate(firings[start:i], watermark)
                start, rows = i, 0
            rows += len(firing.positions)
        if firings:
            yield from self._evaluate(firings[start:], watermark)

    def _evaluate(self, firings: Sequence[Firing], watermark: int) -> Iterator[RecordBatch]:
        rows = self._contents.rows(np.concatenate([f.positions for f in firings]))
        lengths = np.array([len(f.positions) for f in firings])
        keys = self._slots.keys_of(np.array([f.slot for f in firings]))
        starts = np.array([f.window.start for f in firings], np.int64)
        ends = np.array([f.window.end for f in firings], np.int64)
        if self._runner is not None:
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            times = pa.array(ends - 1) if self._factory.bounded_windows else newest_times(rows.timestamps, offsets)
            fired = FiredWindows(Windows(keys, starts, ends, watermark), offsets, rows.columns, times)
            yield from function_results(self._runner, fired)
            return
        cells = np.repeat(np.arange(len(firings)), lengths)
        results = self._aggregator.engine.finish(self._aggregator.lift(rows, cells, len(firings), 0))
        if not self._factory.bounded_windows:
            yield from keyed_results(self._factory.output_schema, keys, results)
            return
        yield from result_batches(self._factory.output_schema, keys, starts, ends, results[:-1])
