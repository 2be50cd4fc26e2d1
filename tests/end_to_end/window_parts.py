"""Window functions, triggers, evictors and assigners that the tests' pipelines name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.process_function import value_state
from flowrun.api.window_function import ProcessWindowFunction, Window, window_state
from flowrun.api.windowing import Evictor, MergingWindowAssigner, Trigger, TriggerResult, WindowAssigner


class Seen(ProcessWindowFunction):
    """The key, the window's bounds, its rows' waits and the watermark; windows of three rows and more to `busy`, too."""

    firings = window_state(value_state("BIGINT"))
    total = value_state("BIGINT")

    def __init__(self, busy: int = 3) -> None:
        self.busy = busy

    def process(self, key: Any, context: Any, rows: Any) -> Any:
        self.firings.update((self.firings.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + len(rows))
        if len(rows) >= self.busy:
            context.side_output("busy", {"k": key[0], "size": len(rows)})
        yield {
            "k": key[0],
            "start": context.window.start,
            "end": context.window.end,
            "seen": repr([row["wait"] for row in rows]),
            "firing": self.firings.value(),
            "total": self.total.value(),
        }


class SeenBatch(ProcessWindowFunction):
    """The same of many windows."""

    firings = window_state(value_state("BIGINT"))
    total = value_state("BIGINT")

    def __init__(self, busy: int = 3) -> None:
        self.busy = busy

    def process_batch(self, windows: pa.RecordBatch, rows: pa.RecordBatch, context: Any) -> Any:
        counts = np.diff(context.offsets)
        firing = self.firings.numpy(default=0) + 1
        self.firings.update(firing)
        total = self.total.numpy(default=0) + counts
        self.total.update(total)
        busy = np.flatnonzero(counts >= self.busy)
        sizes = pa.record_batch({"k": windows.column("k").take(pa.array(busy)), "size": counts[busy]})
        context.side_output("busy", sizes, busy)
        waits = rows.column("wait").to_pylist()
        return pa.record_batch(
            {
                "k": windows.column("k"),
                "start": windows.column("window_start").cast(pa.int64()),
                "end": windows.column("window_end").cast(pa.int64()),
                "seen": [repr(waits[a:b]) for a, b in zip(context.offsets[:-1], context.offsets[1:], strict=True)],
                "firing": firing,
                "total": total,
            }
        )


class Plain(ProcessWindowFunction):
    """What a firing shows, where windows may merge."""

    def process(self, key: Any, context: Any, rows: Any) -> Any:
        shown = (
            f"{context.window.start} {context.window.end} {[row['wait'] for row in rows]} {context.current_watermark}"
        )
        return {"k": key[0], "seen": shown}


class Timed(Trigger):
    """Fires at a time that the first row names, after that at every second row, and at the end."""

    at = value_state("BIGINT")
    rows = value_state("BIGINT")

    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> TriggerResult:
        context.register_event_time_timer(window.max_timestamp)
        if self.at.value() is None:
            self.at.update(timestamp + abs(row["wait"]) % 50)
            context.register_event_time_timer(self.at.value())
        count = (self.rows.value() or 0) + 1
        self.rows.update(count)
        passed = context.current_watermark >= self.at.value()
        return TriggerResult.FIRE if passed and count % 2 == 0 else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, context: Any) -> TriggerResult:
        return TriggerResult.FIRE if time in (self.at.value(), window.max_timestamp) else TriggerResult.CONTINUE


class ByWait(WindowAssigner):
    """Windows as long as rows wait."""

    def assign_windows(self, row: Any, timestamp: int, context: Any) -> Any:
        size = 20 + abs(row["wait"]) % 60
        yield Window(timestamp - timestamp % size, timestamp - timestamp % size + size)


class WaitGaps(MergingWindowAssigner):
    """Sessions that end after the wait of their last row."""

    def assign_windows_batch(self, rows: pa.RecordBatch, timestamps: Any, context: Any) -> Any:
        starts = timestamps.to_numpy()
        return np.arange(len(starts)), starts, starts + 1 + np.abs(rows.column("wait").to_numpy()) % 40


class Even(Evictor):
    """Keeps rows with even waits."""

    def evict_before_batch(self, rows: pa.RecordBatch, timestamps: Any, window: Window, context: Any) -> Any:
        return rows.column("wait").to_numpy() % 2 == 0
