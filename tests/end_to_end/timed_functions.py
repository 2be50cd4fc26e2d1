"""Process functions whose results tell when each timer fired, among which rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.process_function import (
    KeyedBatchContext,
    KeyedProcessContext,
    KeyedProcessFunction,
    ListState,
    OpenContext,
    ProcessContext,
    ProcessFunction,
    ValueState,
    list_state,
    value_state,
)

SENT = ("k", "at", "complete", "x")


class Diary(KeyedProcessFunction):
    """Tells of each row, and of each timer, how many rows of the key came before, and the watermark. Rows set and delete timers."""

    seen: ValueState[int] = value_state("BIGINT")

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> Mapping[str, Any]:
        """Set a timer `wait` ms after the row; `wait` below 0 deletes one."""
        assert context.timestamp is not None
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        if row["wait"] >= 0:
            context.register_event_time_timer(context.timestamp + row["wait"])
        else:
            context.delete_event_time_timer(context.timestamp - row["wait"])
        return {
            "k": row["k"],
            "what": "row",
            "at": context.timestamp,
            "seen": seen,
            "watermark": context.current_watermark,
        }

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Iterator[dict[str, Any]]:
        """Tell, and set another one at times that 7 divides."""
        if timestamp % 7 == 0:
            context.register_event_time_timer(timestamp + 3)
        yield {
            "k": context.current_key[0],
            "what": "timer",
            "at": timestamp,
            "seen": self.seen.value(),
            "watermark": context.current_watermark,
        }


class SlowToOpen(ProcessFunction):
    """Passes rows on; all subtasks but the first take their time before they begin."""

    def open(self, context: OpenContext) -> None:
        """Wait."""
        if context.subtask:
            time.sleep(0.15)

    def process_element(self, row: Mapping[str, Any], context: ProcessContext) -> Mapping[str, Any]:
        """Pass it on."""
        return {"k": row["k"], "wait": row["wait"]}


class Complete(KeyedProcessFunction):
    """Tells at the time of each timer, which is `x` ms after a row, how many rows of the key are not after it, and their sum of `x`."""

    rows: ListState[Any] = list_state("ROW<x BIGINT, at BIGINT>")

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> None:
        """Keep the row, and set the timer."""
        assert context.timestamp is not None
        self.rows.add({"x": row["x"], "at": context.timestamp})
        context.register_event_time_timer(context.timestamp + row["x"])

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Mapping[str, Any]:
        """Tell."""
        seen = [row["x"] for row in self.rows.get() if row["at"] <= timestamp]
        return {"k": context.current_key[0], "at": timestamp, "complete": len(seen), "x": sum(seen)}


class CompleteByBatch(KeyedProcessFunction):
    """As `Complete`, batch by batch."""

    def open(self, context: OpenContext) -> None:
        """Nothing is seen yet."""
        self.seen: dict[str, list[tuple[int, int]]] = {}

    def process_batch(self, batch: pa.RecordBatch, context: KeyedBatchContext) -> None:
        """Keep the rows, and set the timers."""
        assert context.timestamps is not None
        keys, values = batch.column("k").to_pylist(), batch.column("x").to_pylist()
        for key, x, at in zip(keys, values, context.timestamps.to_pylist(), strict=True):
            self.seen.setdefault(key, []).append((x, at))
        times = context.timestamps.to_numpy() + batch.column("x").to_numpy()
        context.register_event_time_timers(times, context.key_index)

    def on_timers(self, timestamps: pa.Array, context: KeyedBatchContext) -> pa.RecordBatch:
        """Tell."""
        keys, times = context.keys.column(0).to_pylist(), timestamps.to_pylist()
        owners = [keys[i] for i in np.asarray(context.key_index).tolist()]
        seen = [[x for x, at in self.seen[key] if at <= time] for key, time in zip(owners, times, strict=True)]
        counts, sums = [len(s) for s in seen], [sum(s) for s in seen]
        return pa.record_batch([pa.array(owners), timestamps, pa.array(counts), pa.array(sums)], names=list(SENT))
