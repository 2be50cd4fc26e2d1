"""Functions of two connected streams: one method an input, with common state and, over keyed streams, timers.

As the functions of one stream (`flowrun.api.process_function`) they work **either** on rows **or** on batches, with both inputs:

| extends | on rows | on batches |
|---|---|---|
| `KeyedCoProcessFunction`, `CoProcessFunction` | `process_element1`, `process_element2` | `process_batch1`, `process_batch2` |
| `CoMapFunction` | `map1`, `map2` | `map_batch1`, `map_batch2` |
| `CoFlatMapFunction` | `flat_map1`, `flat_map2` | `flat_map_batch1`, `flat_map_batch2` |

The first two get `(row, context)` or `(batch, context)`, the others only the row or batch.

State that is declared in the class belongs to the key, whichever input its row came from. Event time is the smaller watermark of both
inputs. Timers (`on_timer`, `on_timers`) are those of `KeyedCoProcessFunction` only. Rows of both inputs come in no particular order.

    class Enrich(KeyedCoProcessFunction):
        rate = value_state("DOUBLE", ttl="1d")

        def process_element1(self, order, context):
            yield {**order, "rate": self.rate.value()}

        def process_element2(self, rate, context):
            self.rate.update(rate["rate"])

    orders.connect(rates).key_by(["currency"], ["currency"]).process(Enrich(), schema)
"""

from __future__ import annotations

from flowrun.api.process_function import (
    BatchContext,
    KeyedBatchContext,
    KeyedProcessContext,
    OpenContext,
    ProcessContext,
    RichFunction,
)


class CoProcessFunction(RichFunction):
    """A function of two streams, without keys; see the module."""


class KeyedCoProcessFunction(CoProcessFunction):
    """A function of two keyed streams, with state a key and timers; see the module.

    The context names the key by the key columns of the first input. Timers fire as those of `KeyedProcessFunction`.
    """


class CoMapFunction(RichFunction):
    """One row for each row of either input; keyed or not. With keys it may declare state a key, but it has no timers."""


class CoFlatMapFunction(RichFunction):
    """Any number of rows for each row of either input; keyed or not. With keys it may declare state a key, but it has no timers.

    A batch function gives a batch, or (batch, position of each row's parent).
    """


__all__ = [
    "BatchContext",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "KeyedBatchContext",
    "KeyedCoProcessFunction",
    "KeyedProcessContext",
    "OpenContext",
    "ProcessContext",
    "RichFunction",
]
