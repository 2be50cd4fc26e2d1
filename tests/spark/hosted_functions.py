"""Functions of the pipelines in test_hosted and test_savepoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import flowrun
from flowrun.api.async_function import AsyncFunction
from flowrun.api.process_function import KeyedProcessFunction, list_state, map_state, value_state


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with twice the `v`."""
    return batch.set_column(1, "v", pc.multiply(batch.column("v"), pa.scalar(2, batch.column("v").type)))


def positive(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, if none has a negative `v`."""
    least = pc.min(batch.column("v")).as_py()
    if least is not None and least < 0:
        raise ValueError(f"{least} is negative")
    return batch


@flowrun.udtf(result="letter STRING, n INT")
def letters(text: str | None) -> Iterator[tuple[str, int]]:
    """Each letter with its place."""
    for number, letter in enumerate(text or ""):
        yield letter, number


class Buckets(KeyedProcessFunction):
    """Counts the rows of each bucket of time with a timer at its end; great values also go to `great`, negative ones fail."""

    counts = map_state("BIGINT", "BIGINT")

    def __init__(self, size_ms: int) -> None:
        self.size_ms = size_ms

    def process_element(self, row: dict[str, Any], context: Any) -> None:
        if (row["v"] or 0) < 0:
            raise ValueError(f"{row['v']} is negative")
        end = (context.timestamp // self.size_ms + 1) * self.size_ms - 1
        self.counts.put(end, (self.counts.get(end) or 0) + 1)
        context.register_event_time_timer(end)
        if (row["v"] or 0) > 10:
            context.side_output("great", {"k": row["k"], "until": context.timestamp, "n": row["v"]})

    def on_timer(self, timestamp: int, context: Any) -> Iterator[dict[str, Any]]:
        yield {"k": context.current_key[0], "until": timestamp, "n": self.counts.get(timestamp)}
        self.counts.remove(timestamp)


class Visits(KeyedProcessFunction):
    """Sums the values of each bucket of time, and all so far, with one timer at a time: at the end of the first bucket that is open."""

    times = list_state("BIGINT")
    values = list_state("BIGINT")
    due = value_state("BIGINT")
    total = value_state("BIGINT")

    def __init__(self, size_ms: int) -> None:
        self.size_ms = size_ms

    def process_element(self, row: dict[str, Any], context: Any) -> None:
        self.times.add(context.timestamp)
        self.values.add(row["v"] or 0)
        self._wait(context)

    def _wait(self, context: Any) -> None:
        known, times = self.due.value(), self.times.get()
        due = (min(times) // self.size_ms + 1) * self.size_ms - 1 if times else None
        if due == known:
            return
        if known is not None:
            context.delete_event_time_timer(known)
        if due is not None:
            context.register_event_time_timer(due)
        self.due.update(due)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[dict[str, Any]]:
        rows = list(zip(self.times.get(), self.values.get(), strict=True))
        self.total.update((self.total.value() or 0) + sum(v for t, v in rows if t <= timestamp))
        self.times.update([t for t, _ in rows if t > timestamp])
        self.values.update([v for t, v in rows if t > timestamp])
        self._wait(context)
        yield {"k": context.current_key[0], "until": timestamp, "n": self.total.value()}


class Asked(AsyncFunction):
    """Each row with twice its `v`, at the second call; tells of great ones beside."""

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Any:
        await asyncio.sleep(0)
        if context.attempt < 2:
            raise ValueError("not yet")
        if row["v"] is not None and row["v"] > 4:
            context.side_output("great", row)
        return {**row, "v": None if row["v"] is None else 2 * row["v"]}
