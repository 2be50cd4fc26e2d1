"""Results of the general window operator's windows: many firings are evaluated at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.conformance import conform
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.windows.general.contents import WindowContents
from flowrun.operators.windows.general.factories import GeneralWindowFactory
from flowrun.operators.windows.general.trigger_contract import Window
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
    """Turns firings into result batches, many at once."""

    def __init__(self, factory: GeneralWindowFactory, contents: WindowContents, slots: KeySlots) -> None:
        self._factory = factory
        self._contents = contents
        self._slots = slots
        self._aggregator = CellAggregator(factory.input_schema, factory.aggregates)
        leading = len(factory.keys) + (2 if factory.bounded_windows else 0)
        self._function_schema = Schema(factory.output_schema.fields[leading:])

    def results(self, firings: Sequence[Firing]) -> Iterator[RecordBatch]:
        """Result batches, in order."""
        start = rows = 0
        for i, firing in enumerate(firings):
            if i > start and rows + len(firing.positions) > _EXPANDED_ROWS:
                yield from self._evaluate(firings[start:i])
                start, rows = i, 0
            rows += len(firing.positions)
        if firings:
            yield from self._evaluate(firings[start:])

    def _evaluate(self, firings: Sequence[Firing]) -> Iterator[RecordBatch]:
        rows = self._contents.rows(np.concatenate([f.positions for f in firings]))
        lengths = np.array([len(f.positions) for f in firings])
        if self._factory.function is not None:
            counts, columns, newest = self._apply(firings, rows, lengths)
            results = [*columns, newest]
        else:
            cells = np.repeat(np.arange(len(firings)), lengths)
            lifted = self._aggregator.lift(rows, cells, len(firings), 0)
            counts, results = np.ones(len(firings), np.int64), self._aggregator.engine.finish(lifted)
        keys = self._slots.keys_of(np.repeat(np.array([f.slot for f in firings]), counts))
        if not self._factory.bounded_windows:
            yield from keyed_results(self._factory.output_schema, keys, results)
            return
        starts = np.repeat(np.array([f.window.start for f in firings], np.int64), counts)
        ends = np.repeat(np.array([f.window.end for f in firings], np.int64), counts)
        yield from result_batches(self._factory.output_schema, keys, starts, ends, results[:-1])

    def _apply(
        self, firings: Sequence[Firing], rows: RecordBatch, lengths: Integers
    ) -> tuple[Integers, list[pa.Array], pa.Array]:
        """(result rows of each firing, result columns, newest event time for each result row)."""
        function = self._factory.function
        assert function is not None
        place = f"window function {type(function).__name__}"
        keys = self._slots.keys_of(np.array([f.slot for f in firings]))
        parts: list[pa.RecordBatch] = []
        newest: list[Any] = []
        start = 0
        for i, (firing, length) in enumerate(zip(firings, lengths.tolist(), strict=True)):
            part = rows.slice(start, length)
            start += length
            result = function.process(tuple(k[i].as_py() for k in keys), firing.window, part.columns)
            parts.append(conform(result, self._function_schema, place))
            newest.append(pc.max(part.timestamps).as_py())
        counts = np.array([p.num_rows for p in parts])
        times = pa.array(newest, pa.int64()).take(pa.array(np.repeat(np.arange(len(parts)), counts)))
        return counts, pa.concat_batches(parts).columns, times
