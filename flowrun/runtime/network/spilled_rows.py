"""Rows as they are in spill files: Arrow IPC streams whose last columns are event times and row kinds, where rows have any."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from flowrun.core.elements import RecordBatch
from flowrun.errors import ConnectorError

_TIMESTAMPS = "__flowrun_timestamps"
_KINDS = "__flowrun_row_kinds"

Layout = tuple[bool, bool]
"""Whether a batch has timestamps, and row kinds: an IPC stream has one schema, so each layout has its own file."""


def layout_of(batch: RecordBatch) -> Layout:
    """The layout of a batch.

    >>> layout_of(RecordBatch(pa.record_batch({"a": [1]}), pa.array([5])))
    (True, False)
    """
    return (batch.timestamps is not None, batch.row_kinds is not None)


def to_columns(batch: RecordBatch) -> pa.RecordBatch:
    """What is written of a batch; watermarks between its rows are not."""
    columns = batch.columns
    if batch.timestamps is not None:
        columns = columns.append_column(_TIMESTAMPS, batch.timestamps)
    if batch.row_kinds is not None:
        columns = columns.append_column(_KINDS, batch.row_kinds)
    return columns


def from_columns(columns: pa.RecordBatch, layout: Layout) -> RecordBatch:
    """The batch of which `to_columns` gave these columns."""
    width = columns.num_columns - sum(layout)
    kinds = columns.column(columns.num_columns - 1) if layout[1] else None
    timestamps = columns.column(width) if layout[0] else None
    rows = columns.select(list(range(width)))
    return RecordBatch(rows, timestamps, kinds)


def cannot_spill(what: str, folder: Path, error: OSError) -> ConnectorError:
    """The error for rows that a disk does not take. `what`: which rows, as in `rows between two stages`."""
    return ConnectorError(
        f"cannot spill {what} to {folder}: {error}", hint="free space there, or set TMPDIR to a larger disk"
    )
