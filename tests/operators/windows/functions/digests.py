"""Window functions that tell all that they see, by window and by batch, and what Flink's `WindowOperator` would have them tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OutputTag
from flowrun.api.process_function import value_state
from flowrun.api.window_function import ProcessWindowFunction, window_state
from flowrun.core.elements import MIN_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, timestamp

TOLD = Schema.of(key=STRING, start=timestamp(3), end=timestamp(3), rows=STRING, firing=BIGINT, total=BIGINT)
BUSY = OutputTag("busy", Schema.of(key=STRING, rows=BIGINT))


class Digest(ProcessWindowFunction):
    """Key, bounds, the rows' numbers, how often the window fired and how many rows its key has shown; nothing for two rows."""

    firings = window_state(value_state("BIGINT"))
    total = value_state("BIGINT")

    def process(self, key: Any, context: Any, rows: Any) -> Any:
        firing = (context.window_state["firings"].value() or 0) + 1
        self.firings.update(firing)
        total = (context.global_state["total"].value() or 0) + len(rows)
        self.total.update(total)
        if len(rows) > 3:
            context.side_output("busy", {"key": repr(key), "rows": len(rows)})
        if len(rows) != 2:
            yield {
                "key": repr(key),
                "start": np.datetime64(context.window.start, "ms").item(),
                "end": np.datetime64(context.window.end, "ms").item(),
                "rows": repr([r["v"] for r in rows]),
                "firing": firing,
                "total": total,
            }


class DigestWithClear(Digest):
    """The same: what it is told when windows are forgotten changes nothing."""

    def clear(self, context: Any) -> None:
        assert self.firings.value()


class DigestBatch(ProcessWindowFunction):
    """The same, of many windows at once."""

    firings = window_state(value_state("BIGINT"))
    total = value_state("BIGINT")

    def process_batch(self, windows: pa.RecordBatch, rows: pa.RecordBatch, context: Any) -> Any:
        counts = np.diff(context.offsets)
        assert counts.tolist() == np.bincount(context.window_index, minlength=windows.num_rows).tolist()
        firing = self.firings.numpy(default=0) + 1
        self.firings.update(firing)
        totals = self.total.numpy(default=0) + counts
        self.total.update(totals)
        keys = [repr(tuple(row.values())[:-2]) for row in windows.to_pylist()]
        values = rows.column("v").to_pylist()
        texts = [repr(values[a:b]) for a, b in zip(context.offsets[:-1], context.offsets[1:], strict=True)]
        busy = np.flatnonzero(counts > 3)
        context.side_output("busy", pa.record_batch({"key": [keys[i] for i in busy], "rows": counts[busy]}), busy)
        told = pa.record_batch(
            {
                "key": pa.array(keys),
                "start": windows.column("window_start"),
                "end": windows.column("window_end"),
                "rows": pa.array(texts),
                "firing": firing,
                "total": totals,
            }
        )
        chosen = np.flatnonzero(counts != 2)
        return told.take(pa.array(chosen)), chosen


class FunctionOracle:
    """Rows and watermarks one by one, after Flink's `WindowOperator` with the event-time trigger and `Digest`."""

    def __init__(
        self, assign: Callable[[int], Iterable[tuple[int, int]]], keys: tuple[int, ...], lateness: int
    ) -> None:
        self._assign = assign
        self._keys = keys
        self._lateness = lateness
        self._watermark = MIN_TIMESTAMP
        self._windows: dict[Any, list[Any]] = {}
        self._firings: dict[Any, int] = defaultdict(int)
        self._totals: dict[Any, int] = defaultdict(int)
        self.emitted: list[Any] = []
        self.busy: list[Any] = []
        self.late: list[Any] = []

    def row(self, row: Any, time: int) -> None:
        key = tuple(row[k] for k in self._keys)
        skipped = True
        for start, end in sorted(self._assign(time), key=lambda w: -w[1]):
            if end - 1 + self._lateness <= self._watermark:
                continue
            skipped = False
            self._windows.setdefault((key, start, end), []).append(row[2])
            if end - 1 <= self._watermark:
                self._fire(key, start, end)
        if skipped and time + self._lateness <= self._watermark:
            self.late.append(row)

    def _fire(self, key: Any, start: int, end: int) -> None:
        rows = self._windows[key, start, end]
        self._firings[key, start, end] += 1
        self._totals[key] += len(rows)
        if len(rows) > 3:
            self.busy.append((repr(key), len(rows)))
        if len(rows) != 2:
            told = (repr(key), start, end, repr(rows), self._firings[key, start, end], self._totals[key])
            self.emitted.append(told)

    def advance(self, watermark: int) -> None:
        before, self._watermark = self._watermark, watermark
        for key, start, end in sorted(self._windows, key=lambda w: w[2]):
            if before < end - 1 <= watermark:
                self._fire(key, start, end)
        for window in list(self._windows):
            if window[2] - 1 + self._lateness <= watermark:
                del self._windows[window]
                self._firings.pop(window, None)
