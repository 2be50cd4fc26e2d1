"""Rows that wait: batches that never change, numbered by arrival, merged by size; a snapshot has each of them as a segment.

So a checkpoint writes only what came, or was put together, since the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from flowrun.api.state import StateSegment, keyed_schema
from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.restored_tables import restored_batches
from flowrun.operators.keyed.row_store import ROW_COLUMN, state_names, stored_keys
from flowrun.state.key_groups import key_groups_or_zero

_LITTLE = 1024


def waiting_schema(schema: Schema, keys: Sequence[int]) -> pa.Schema:
    """Columns of the state table of waiting rows: key group, key columns, number by arrival, the other columns."""
    fields = [f.with_name(n) for f, n in zip(schema.arrow, state_names(schema.names), strict=True)]
    others = [f for i, f in enumerate(fields) if i not in keys]
    return keyed_schema([fields[k] for k in stored_keys(keys)], [pa.field(ROW_COLUMN, pa.int64()), *others])


@record(slots=False)
class WaitingTable:
    """How waiting rows are written and read. Immutable and thread-safe.

    Attributes:
        schema: of the rows.
        keys: positions of the key columns; one may come more than once.
    """

    name: str
    schema: Schema
    keys: tuple[int, ...]
    max_parallelism: int

    @cached_property
    def columns(self) -> pa.Schema:
        """Columns of the state table."""
        return waiting_schema(self.schema, self.keys)

    def table(self, rows: pa.RecordBatch, numbers: Integers) -> pa.Table:
        """The state rows of some rows."""
        groups = key_groups_or_zero([rows.column(k) for k in self.keys], rows.num_rows, self.max_parallelism)
        keys = [rows.column(k) for k in stored_keys(self.keys)]
        others = [c for i, c in enumerate(rows.columns) if i not in self.keys]
        return pa.Table.from_arrays([pa.array(groups), *keys, pa.array(numbers), *others], schema=self.columns)

    def read(self, table: pa.Table) -> Iterator[Run]:
        """The rows of a state table in order of arrival.

        Raises:
            StateError: it has other columns.
        """
        ordered = table.take(pa.array(np.argsort(table[ROW_COLUMN].to_numpy(), kind="stable")))
        for batch in restored_batches(self.name, ordered, self.columns):
            columns = [batch.column(name) for name in state_names(self.schema.names)]
            rows = pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow)
            yield Run(rows, batch.column(ROW_COLUMN).to_numpy())


@record(slots=False)
class Run:
    """Rows with their numbers by arrival; neither changes."""

    rows: pa.RecordBatch
    numbers: Integers
    _segments: dict[str, StateSegment] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, positions: Integers) -> Run:
        """Some of the rows, in this order."""
        return Run(self.rows.take(pa.array(positions)), self.numbers[positions])

    def slice(self, start: int, stop: int) -> Run:
        """The rows from `start` up to `stop`."""
        return Run(self.rows.slice(start, stop - start), self.numbers[start:stop])

    def segment(self, table: WaitingTable) -> StateSegment:
        """The rows as a segment, the same one each time."""
        if table.name not in self._segments:
            self._segments[table.name] = StateSegment(partial(table.table, self.rows, self.numbers))
        return self._segments[table.name]


def concat_runs(runs: Sequence[Run]) -> Run:
    """All rows of some runs, one after the other."""
    if len(runs) == 1:
        return runs[0]
    return Run(pa.concat_batches([r.rows for r in runs]), np.concatenate([r.numbers for r in runs]))


def append_run(runs: list[Run], run: Run) -> None:
    """Append to a list of runs in which each is more than twice as long as the next, but for little ones: few runs, few copies."""
    size, kept = len(run), len(runs)
    while kept and len(runs[kept - 1]) <= 2 * size + _LITTLE:
        kept -= 1
        size += len(runs[kept])
    runs[kept:] = [concat_runs([*runs[kept:], run])]
