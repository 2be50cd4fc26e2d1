"""Looks up rows in a table of a database: one query for all keys of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.lookup import FoundRows, Lookup, LookupContext
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.fitting import fitted, selected
from flowrun.connectors.jdbc.relation import Access, Dialect, ReadSession, Relation
from flowrun.connectors.newest_rows import key_numbers
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.errors import ConnectorError


@record
class JdbcLookupSource:
    """A table that is asked by key.

    Attributes:
        access: the table.
        schema: the columns of the rows that are found.
        keys: the columns that are asked by.
    """

    access: Access
    schema: Schema
    keys: Schema

    def create_lookup(self, context: LookupContext) -> Lookup:
        """The lookup of one subtask, with a connection of its own."""
        return JdbcLookup(self)


class JdbcLookup:
    """One connection that asks. After a failure it is made anew at the next question."""

    def __init__(self, source: JdbcLookupSource) -> None:
        self._source = source
        self._dialect: Dialect = dialect_of(source.access.address.scheme)
        self._session: ReadSession | None = None
        self._relation: Relation | None = None
        fields = [Field(f"key{i}", f.type) for i, f in enumerate(source.keys)]
        self._read = Schema(
            (*source.schema.fields, *(Field(f.name, k.type) for f, k in zip(fields, source.keys, strict=True)))
        )
        self._selected = ""

    def open(self) -> None:
        """Connect, and compare the table with what was declared. Raises ConnectorError."""
        self._connect()

    def _connect(self) -> tuple[ReadSession, Relation]:
        if self._session is None or self._relation is None:
            source = self._source
            session = self._dialect.open_reader(source.access)
            try:
                relation = session.describe()
                parts = [selected(self._dialect, relation, s) for s in (source.schema, source.keys) if len(s)]
            except BaseException:
                session.close()
                raise
            self._session, self._relation, self._selected = session, relation, ", ".join(parts)
        return self._session, self._relation

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """The rows with these keys.

        Raises:
            ConnectorError: the database failed; the next call connects anew.
            DataError: a value is not as declared.
        """
        asked = np.flatnonzero(~_any_null(keys))
        known = keys if len(asked) == keys.num_rows else keys.take(pa.array(asked))
        numbers = key_numbers(known.columns, range(known.num_columns))
        first = _first_of_each(numbers)
        distinct = known if len(first) == known.num_rows else known.take(pa.array(first))
        found = self._ask(distinct)
        wanted = len(self._source.schema)
        of_distinct = _matches(distinct.columns, found.columns[wanted:])
        rows = pa.RecordBatch.from_arrays(found.columns[:wanted], schema=self._source.schema.arrow) if wanted else None
        positions, probe = _spread(of_distinct, numbers, asked)
        if rows is None:
            return FoundRows(pa.RecordBatch.from_struct_array(pa.array([{}] * len(probe), pa.struct([]))), probe)
        return FoundRows(rows.take(pa.array(positions)), probe)

    def _ask(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        try:
            session, relation = self._connect()
            columns = [(relation.column(f.name), f.type) for f in self._source.keys]
            query = self._dialect.lookup(relation, self._selected, columns, keys) if keys.num_rows else None
            batches = [] if query is None else list(session.read(query))
            rows = [fitted(batch.columns, self._read, relation) for batch in batches]
        except ConnectorError:
            self.close()
            raise
        return (
            pa.Table.from_batches(rows, self._read.arrow).combine_chunks().to_batches()[0]
            if any(r.num_rows for r in rows)
            else _empty(self._read)
        )

    def close(self) -> None:
        """Disconnect."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _any_null(columns: pa.RecordBatch) -> Bools:
    missing = np.zeros(columns.num_rows, np.bool_)
    for column in columns.columns:
        if column.null_count:
            missing |= column.is_null().to_numpy(zero_copy_only=False)
    return missing


def _first_of_each(numbers: Integers) -> Integers:
    """The first position of each number 0, 1, …, which occur in this order for the first time."""
    first = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first


def _matches(keys: Sequence[pa.Array], found: Sequence[pa.Array]) -> Integers:
    """For each row that was found the position of its key; −1: what the database holds equal, as by a collation, is another value."""
    number = len(keys[0])
    numbers = key_numbers([pa.concat_arrays([k, f]) for k, f in zip(keys, found, strict=True)], range(len(keys)))
    of_found: Integers = numbers[number:]  # distinct keys have the numbers of their positions
    return np.where(of_found < number, of_found, -1)


def _spread(of_distinct: Integers, numbers: Integers, asked: Integers) -> tuple[Integers, Integers]:
    """(positions of rows that were found, positions of the keys that they are for), by ascending key position."""
    order = np.argsort(of_distinct, kind="stable")
    order = order[of_distinct[order] >= 0]
    held = of_distinct[order]
    starts = np.searchsorted(held, numbers, "left")
    counts = np.searchsorted(held, numbers, "right") - starts
    probe = np.repeat(asked, counts)
    ends = np.cumsum(counts)
    at = np.arange(len(probe)) + np.repeat(starts - (ends - counts), counts)
    return order[at], probe


def _empty(schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema.arrow], schema=schema.arrow)
