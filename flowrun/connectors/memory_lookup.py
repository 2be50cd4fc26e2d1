"""Lookups in named tables of this process, for lookup joins in tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from flowrun.api.lookup import FoundRows, Lookup, LookupContext
from flowrun.connectors.asked_keys import AskedKeys
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema


@record
class MemoryLookupSource:
    """A table that is asked by key, with the rows that it has at the moment of the question.

    Attributes:
        rows: gives them.
        schema: the columns of the rows that are found.
        keys: the columns that are asked by.
    """

    rows: Callable[[], Sequence[RecordBatch]]
    schema: Schema
    keys: Schema

    @property
    def in_process(self) -> bool:
        """The tables are this process's own."""
        return True

    def create_lookup(self, context: LookupContext) -> Lookup:
        """The lookup of one subtask."""
        return _MemoryLookup(self)


class _MemoryLookup:
    def __init__(self, source: MemoryLookupSource) -> None:
        self._source = source

    def open(self) -> None:
        """Nothing to connect to."""

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """The rows with these keys."""
        asked, source = AskedKeys(keys), self._source
        wanted = pa.schema([*source.schema.arrow, *(f for f in source.keys.arrow if f.name not in source.schema.names)])
        batches = [b.columns.select(wanted.names).cast(wanted) for b in source.rows()]
        table = pa.Table.from_batches(batches, wanted).combine_chunks()
        rows = table.to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], wanted)
        owners = asked.owners([rows.column(name) for name in source.keys.names])
        positions, probe = asked.spread(owners)
        return FoundRows(rows.select(source.schema.names).take(pa.array(positions, pa.int64())), probe)

    def close(self) -> None:
        """Nothing to release."""
