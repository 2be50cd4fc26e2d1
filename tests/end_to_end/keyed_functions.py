"""Keyed functions over rows `k, n, ts`, by row and by batch, which tell what they know of a key when its last timer fires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.process_function import (
    KeyedBatchContext,
    KeyedProcessContext,
    KeyedProcessFunction,
    ListState,
    MapColumn,
    MapState,
    ValueColumn,
    ValueState,
    list_state,
    map_state,
    value_state,
)

END = 2**62
"""Later than all rows."""


class Remembering(KeyedProcessFunction):
    """All values of a key in their order, how often each came, and the timers that fired before the last."""

    count: ValueState[int] = value_state("BIGINT")
    values: ListState[int] = list_state("BIGINT")
    often: MapState[int, int] = map_state("BIGINT", "BIGINT")

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> None:
        """Remember the row."""
        assert context.timestamp is not None
        self.count.update((self.count.value() or 0) + 1)
        self.values.add(row["n"])
        self.often.put(row["n"], (self.often.get(row["n"]) or 0) + 1)
        context.register_event_time_timer(END - row["n"])
        context.register_event_time_timer(END)
        context.register_processing_time_timer(context.processing_time + 3_600_000)

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Iterator[dict[str, Any]]:
        """Tell."""
        if context.time_domain == "event":
            often = sorted(self.often.items())
            told = f"{END - timestamp} {self.count.value()} {list(self.values.get())} {often}"
            yield {"k": context.current_key[0], "told": told}


class Counting(KeyedProcessFunction):
    """The same by batch, without the order."""

    count: ValueColumn = value_state("BIGINT")
    often: MapColumn = map_state("BIGINT", "BIGINT")

    def process_batch(self, rows: pa.RecordBatch, context: KeyedBatchContext) -> None:
        """Count rows."""
        index = context.key_index
        counts = self.count.numpy(0)
        np.add.at(counts, index, 1)
        self.count.update(pa.array(counts))
        context.register_event_time_timers(pa.array(np.full(context.num_keys, END)))
        context.register_processing_time_timers(pa.array(np.full(context.num_keys, END)))

    def on_timers(self, timestamps: pa.Array, context: KeyedBatchContext) -> None:
        """Tell."""
        if context.time_domain == "event":
            texts = [str(n) for n in self.count.get().to_pylist()]
            keys = context.keys.column(0)
            context.collect(pa.record_batch({"k": keys, "told": pa.array(texts, pa.string())}))


class FailingOnce(Remembering):
    """The same, but the tenth row of all fails the first time."""

    rows = 0
    failures = 0

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> None:
        """Remember the row, or fail."""
        FailingOnce.rows += 1
        if FailingOnce.rows == 10:
            FailingOnce.failures += 1
            raise OSError("once")
        super().process_element(row, context)
