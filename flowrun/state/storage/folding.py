"""What counts of a table in segments: the rows of live segments, and of an upsert log the newest row of each key, unless deleted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import DELETED_COLUMN, KEY_COLUMNS_METADATA, KeyGroupRange, SegmentedTable
from flowrun.core.arrays import Bools, Int32s
from flowrun.errors import InternalError
from flowrun.state.storage.grouped_rows import GroupedRows, runs_of_groups
from flowrun.state.storage.key_order import key_ranks

SEGMENT_COLUMN = "__segment"
"""Name of the int32 column, last in the files of tables in segments: of two rows of one key the higher number is newer."""

_RUN = 1 << 17
"""Rows that are folded at a time: few enough that sorting their keys stays in the processor's caches."""


def key_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Names of a keyed table's key columns, as its metadata says; none if it does not say."""
    count = (schema.metadata or {}).get(KEY_COLUMNS_METADATA)
    return () if count is None else tuple(schema.names[1 : int(count) + 1])


def with_segment(rows: pa.Table, number: int) -> pa.Table:
    """The rows with `SEGMENT_COLUMN`."""
    return rows.append_column(_SEGMENT_FIELD, pa.array(np.full(rows.num_rows, number, np.int32)))


def segmented_schema(schema: pa.Schema) -> pa.Schema:
    """A table's columns as they are in its files."""
    if SEGMENT_COLUMN in schema.names:
        raise InternalError(f"a state table has a column named {SEGMENT_COLUMN}, which is for the storage")
    return schema.append(_SEGMENT_FIELD)


_SEGMENT_FIELD = pa.field(SEGMENT_COLUMN, pa.int32(), nullable=False)


def live_segments(rows: pa.Table, live: Sequence[int]) -> pa.Table:
    """The rows, with `SEGMENT_COLUMN` last, whose segment is among `live`."""
    segments = _numbers(rows)
    if len(segments) == 0:
        return rows
    counts = np.zeros(int(max(segments.max(), *live)) + 1, bool) if live else np.zeros(int(segments.max()) + 1, bool)
    counts[list(live)] = True
    wanted = counts[segments]
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def restored_schema(schema: pa.Schema) -> pa.Schema:
    """Columns of a table as operators restore it: without `DELETED_COLUMN`."""
    return pa.schema([f for f in schema if f.name != DELETED_COLUMN], schema.metadata)


def fold(rows: pa.Table, key: Sequence[str] | None, groups: KeyGroupRange) -> pa.Table:
    """The rows that operators restore.

    Args:
        rows: of live segments, `SEGMENT_COLUMN` last.
        key: as in `SegmentedTable`.
        groups: all that rows may be of.
    """
    if key is None:
        return rows.drop_columns([SEGMENT_COLUMN])
    segments = _numbers(rows)
    if len(segments) == 0:
        return _restored(rows)
    # A log is one large segment and some small ones most of the time: only rows whose keys another segment may have are compared.
    smaller = segments != np.bincount(segments).argmax()
    contested = (
        smaller | _among(rows, rows.select(list(key)).filter(pa.array(smaller)), key) if smaller.any() else smaller
    )
    deleted = rows[DELETED_COLUMN].to_numpy().astype(bool)
    if not contested.any():  # a segment holds each key once
        return _restored(rows.filter(pa.array(~deleted)) if deleted.any() else rows)
    sure = _restored(rows).filter(pa.array(~(contested | deleted)))
    grouped = GroupedRows(rows.filter(pa.array(contested)), key, groups)
    parts = [_newest_of(grouped.run(a, b), key) for a, b in runs_of_groups(grouped.offsets, _RUN)]
    return pa.concat_tables([sure, _restored(pa.Table.from_batches(parts, rows.schema))])


def _restored(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([SEGMENT_COLUMN, DELETED_COLUMN])


def _among(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> Bools:
    """For each row whether it may be one of the keys of `others`: false only if one of its key columns has a value that none there has."""
    found = np.ones(rows.num_rows, bool)
    for name in key:
        kind = rows.schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_dictionary(kind):
            continue  # Arrow does not look these up, or tells −0.0 from 0.0
        found &= pc.is_in(rows[name], value_set=pc.unique(others[name])).to_numpy()
    return found


def fold_segments(table: SegmentedTable, groups: KeyGroupRange) -> pa.Table:
    """What operators restore of a table that is still in memory."""
    parts = [with_segment(s.rows(), number) for number, s in enumerate(table.segments)]
    rows = pa.concat_tables(parts) if parts else segmented_schema(table.schema).empty_table()
    return fold(rows, table.key, groups)


def _newest_of(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    keys = [rows.column(rows.schema.get_field_index(k)) for k in key]
    codes = key_ranks(keys or [rows.column(0)])
    order = np.argsort(rows.column(rows.num_columns - 1).to_numpy(), kind="stable")
    newest = np.empty(int(codes.max()) + 1, np.int64)
    newest[codes[order]] = order  # of several assignments to one place the last one stays
    newest.sort()
    deleted = rows.column(rows.schema.get_field_index(DELETED_COLUMN)).to_numpy(zero_copy_only=False).astype(bool)
    return rows.take(pa.array(newest[~deleted[newest]]))


def _numbers(rows: pa.Table) -> Int32s:
    numbers: Int32s = rows.column(rows.num_columns - 1).to_numpy()
    return numbers
