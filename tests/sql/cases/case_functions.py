"""Python functions that the cases call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import flowrun
from flowrun.api.process_function import (
    KeyedBatchContext,
    KeyedProcessContext,
    KeyedProcessFunction,
    ProcessContext,
    ProcessFunction,
    value_state,
)


@flowrun.udf(result="STRING")
def masked(text: str) -> str:
    """All but the last character hidden."""
    return "*" * (len(text) - 1) + text[-1:]


@flowrun.udf(arguments=["INT", "INT"], result="INT")
@flowrun.udf(arguments=["STRING", "INT"], result="STRING")
def repeated(value: Any, times: int = 2) -> Any:
    """A text several times, or a number as often."""
    return value * times


@flowrun.ptf(result="orders BIGINT, pieces BIGINT")
class Totals(KeyedProcessFunction):
    """What each key comes to, sent when event time has reached the year 2100; rows of fewer than `least` pieces do not count."""

    orders = value_state("BIGINT")
    pieces = value_state("BIGINT")

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def process_element(self, row: dict[str, Any], context: KeyedProcessContext) -> None:
        """Count a row."""
        if (row["quantity"] or 0) >= self._least:
            self.orders.update((self.orders.value() or 0) + 1)
            self.pieces.update((self.pieces.value() or 0) + (row["quantity"] or 0))
            context.register_event_time_timer(4_102_444_800_000)

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> dict[str, Any]:
        """Send the totals."""
        return {"orders": self.orders.value(), "pieces": self.pieces.value()}


@flowrun.ptf(result="orders BIGINT")
class BatchTotals(KeyedProcessFunction):
    """How many rows each key has, by batches."""

    orders = value_state("BIGINT")

    def process_batch(self, batch: pa.RecordBatch, context: KeyedBatchContext) -> None:
        """Count the rows."""
        added = np.bincount(context.key_index, minlength=context.num_keys)
        self.orders.update(self.orders.numpy(default=0) + added)
        context.register_event_time_timers(np.full(context.num_keys, 4_102_444_800_000))

    def on_timers(self, timestamps: pa.Array, context: KeyedBatchContext) -> pa.RecordBatch:
        """Send the counts."""
        return pa.record_batch({"orders": self.orders.numpy(default=0)})


@flowrun.ptf(result="word STRING", table="r", pass_columns_through=True)
class Words(ProcessFunction):
    """The words of each product, with the row that they are of."""

    def process_element(self, row: dict[str, Any], context: ProcessContext) -> Iterator[dict[str, Any]]:
        """One row a word."""
        for word in row["product"].split():
            yield {"word": word}
