"""The rows that a sink keeps by key, as keyed state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.sink import KeyedSink, Sink
from flowrun.api.state import keyed_schema
from flowrun.core.provided import provides
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.state.key_groups import key_groups

KEPT_ROWS = "rows"
"""Name of the keyed state."""

AGE = "__age"
"""Column of the order in which rows came."""


@record
class KeptRows:
    """The state table of a sink's rows: key group, key columns, the other columns, and the order in which rows came (int64).

    Attributes:
        rows: columns of the sink.
        keys: names of the key columns.
        groups: into how many groups keys are dealt.
    """

    rows: Schema
    keys: tuple[str, ...]
    groups: int

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state table."""
        fields = {f.name: f for f in self.rows.arrow}
        rest = [f for n, f in fields.items() if n not in self.keys]
        return keyed_schema([fields[k] for k in self.keys], [*rest, pa.field(AGE, pa.int64(), nullable=False)])

    def table(self, rows: pa.RecordBatch) -> pa.Table:
        """The state table of some rows; references them."""
        columns = [rows.column(k) for k in self.keys]
        groups = pa.array(key_groups(columns, self.groups))
        rest = [rows.column(n) for n in rows.schema.names if n not in self.keys]
        ages = pa.array(np.arange(rows.num_rows))
        return pa.Table.from_arrays([groups, *columns, *rest, ages], schema=self.schema)

    def read(self, table: pa.Table) -> pa.RecordBatch:
        """The rows of a state table, in the order in which they came."""
        ages = table.column(AGE).to_numpy()
        ordered = table.select(list(self.rows.names)).take(pa.array(np.argsort(ages, kind="stable"))).combine_chunks()
        arrays = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in ordered.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.rows.arrow)


def kept_rows_of(sink: Sink) -> KeptRows | None:
    """The state of a sink that keeps rows by key; None for others."""
    if not provides(sink, KeyedSink) or not sink.primary_key:
        return None
    return KeptRows(sink.schema, sink.primary_key, sink.key_groups)
