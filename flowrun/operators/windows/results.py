"""Result rows of windows: keys, the bounds of windows that time bounds, aggregates; in batches of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.operators.timed.assigners import Times
from flowrun.operators.timed.event_rows import MAX_OUTPUT_ROWS

_TIMESTAMP = pa.timestamp("ms")


def result_batches(
    schema: Schema, keys: Sequence[pa.Array], starts: Times, ends: Times, results: Sequence[pa.Array]
) -> Iterator[RecordBatch]:
    """Result rows (keys, window_start, window_end, aggregates) in batches of a bounded size; event time is window_end − 1."""
    bounds = [pa.array(starts).view(_TIMESTAMP), pa.array(ends).view(_TIMESTAMP)]
    columns = pa.RecordBatch.from_arrays([*keys, *bounds, *results], schema=schema.arrow)
    whole = RecordBatch(columns, pa.array(ends - 1))
    for start in range(0, whole.num_rows, MAX_OUTPUT_ROWS):
        yield whole if whole.num_rows <= MAX_OUTPUT_ROWS else whole.slice(start, MAX_OUTPUT_ROWS)


def keyed_results(schema: Schema, keys: list[pa.Array], results: list[pa.Array]) -> Iterator[RecordBatch]:
    """Result rows (keys, aggregates) in batches of a bounded size; the last of `results` is their event time, if they have one."""
    *columns, times = results
    rows = pa.RecordBatch.from_arrays([*keys, *columns], schema=schema.arrow)
    whole = RecordBatch(rows, None if times.null_count else times)
    for start in range(0, whole.num_rows, MAX_OUTPUT_ROWS):
        yield whole if whole.num_rows <= MAX_OUTPUT_ROWS else whole.slice(start, MAX_OUTPUT_ROWS)
