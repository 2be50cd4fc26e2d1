"""Functions of the pipelines in test_hosted and test_savepoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.process_function import KeyedProcessFunction, map_state


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with twice the `v`."""
    return batch.set_column(1, "v", pc.multiply(batch.column("v"), pa.scalar(2, batch.column("v").type)))


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
