"""A keyed state table as a log of changes: what a snapshot adds is one immutable segment with the keys that changed since the last.

After the incremental snapshots of log-structured stores (Apache Flink's RocksDB backend, Arroyo's expiring tables): the newest row of
a key counts, a tombstone ends it. The log is folded into one segment when it holds more than twice the live rows; before that, many
small segments are folded by size, so that there are few. Folding is left to whoever reads the segment: the thread that writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN, SegmentedTable, StateSegment
from flowrun.core.record import record
from flowrun.state.storage.key_order import key_ranks

_MAX_SEGMENTS = 24
_SLACK_ROWS = 4096


@record
class _Piece:
    segment: StateSegment
    rows: int


class UpsertLog:
    """The log of one table. Not thread-safe, but its segments may be read from any thread.

    Args:
        schema: of the rows: key group, key columns, values, `DELETED_COLUMN`.
        key: names of the columns that tell rows apart; without any there is one row.
    """

    def __init__(self, schema: pa.Schema, key: tuple[str, ...]) -> None:
        self._schema = schema
        self._key = key
        self._pieces: list[_Piece] = []

    @property
    def rows(self) -> int:
        """Rows in the log, dead ones included."""
        return sum(p.rows for p in self._pieces)

    def append(self, rows: int, materialise: Callable[[], pa.Table]) -> None:
        """Add a segment of `rows` rows, each of another key."""
        if rows:
            self._pieces.append(_Piece(StateSegment(_Once(materialise)), rows))

    def table(self, live: int) -> SegmentedTable:
        """The log as it is, folded where that pays; `live` is the number of keys that have a value."""
        if live == 0:
            self._pieces = []
        elif len(self._pieces) > 1 and self.rows > 2 * live + _SLACK_ROWS:
            self._fold(0, live)
        elif len(self._pieces) > _MAX_SEGMENTS:
            self._fold(self._small_from(), live)
        return SegmentedTable(self._schema, tuple(p.segment for p in self._pieces), self._key)

    def _small_from(self) -> int:
        """The first of the segments that are to become one: each before it is at least twice as long as all that follow it."""
        rest = self.rows
        for position, piece in enumerate(self._pieces[:-1]):
            rest -= piece.rows
            if piece.rows < 2 * rest:
                return position
        return len(self._pieces) - 2

    def _fold(self, start: int, live: int) -> None:
        folded = [p.segment for p in self._pieces[start:]]
        schema, key = self._schema, self._key
        whole = start == 0

        def rows() -> pa.Table:
            return newest_rows([s.rows() for s in folded], schema, key, drop_deleted=whole)

        total = sum(p.rows for p in self._pieces[start:])
        self._pieces[start:] = [_Piece(StateSegment(_Once(rows)), min(live, total) if whole else total)]


def newest_rows(
    tables: Sequence[pa.Table],
    schema: pa.Schema,
    key: Sequence[str],
    *,
    drop_deleted: bool,
) -> pa.Table:
    """Of the rows of each key the one in the last table, in order of the tables.

    Args:
        tables: oldest first; a table holds each key once.
        schema: of the tables.
        key: names of the columns that tell rows apart.
        drop_deleted: leave out keys whose newest row is a tombstone.
    """
    rows = pa.concat_tables([t for t in tables if t.num_rows] or [schema.empty_table()]).combine_chunks()
    if len(tables) > 1 and rows.num_rows:
        codes = key_ranks([_array(rows[name]) for name in key or (KEY_GROUP_COLUMN,)])
        newest = np.empty(int(codes.max()) + 1, np.int64)
        newest[codes] = np.arange(len(codes))  # of several assignments to one place the last one stays
        rows = rows.take(pa.array(np.sort(newest)))
    return rows.filter(pc.invert(rows[DELETED_COLUMN])) if drop_deleted else rows


class _Once:
    """Makes a table when it is first asked for, and keeps it in place of what it was made of."""

    def __init__(self, make: Callable[[], pa.Table]) -> None:
        self._make: Callable[[], pa.Table] | None = make
        self._table: pa.Table | None = None
        self._lock = threading.Lock()

    def __call__(self) -> pa.Table:
        with self._lock:
            if self._table is None:
                assert self._make is not None
                self._table = self._make()
                self._make = None
            return self._table


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
