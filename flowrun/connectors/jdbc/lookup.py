"""Looks up rows in a table of a database: one query for all keys of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.lookup import FoundRows, Lookup, LookupContext
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.fitting import fitted, selection_of
from flowrun.connectors.jdbc.relation import Access, Dialect, ReadSession, Relation, Selection
from flowrun.connectors.newest_rows import key_numbers
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
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

    @property
    def in_process(self) -> bool:
        """Whether the database is open in one process at a time."""
        return dialect_of(self.access.address.scheme).in_process(self.access)

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
        self._fields = (*source.schema.fields, *source.keys.fields)
        self._selection: Selection | None = None

    def open(self) -> None:
        """Connect, and compare the table with what was declared. Raises ConnectorError."""
        self._connect()

    def _connect(self) -> tuple[ReadSession, Relation, Selection]:
        if self._session is None or self._relation is None or self._selection is None:
            session = self._dialect.open_reader(self._source.access)
            try:
                relation = session.describe()
                selection = selection_of(self._dialect, relation, self._fields)
            except BaseException:
                session.close()
                raise
            self._session, self._relation, self._selection = session, relation, selection
        return self._session, self._relation, self._selection

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
        of_distinct = _matches(distinct.columns, found[wanted:])
        rows = pa.RecordBatch.from_arrays(found[:wanted], schema=self._source.schema.arrow) if wanted else None
        positions, probe = _spread(of_distinct, numbers, asked)
        if rows is None:
            return FoundRows(pa.RecordBatch.from_struct_array(pa.array([{}] * len(probe), pa.struct([]))), probe)
        return FoundRows(rows.take(pa.array(positions)), probe)

    def _ask(self, keys: pa.RecordBatch) -> list[pa.Array]:
        """The wanted columns and then the keys of all rows that the database finds."""
        found: list[list[pa.Array]] = []
        try:
            session, relation, selection = self._connect()
            if keys.num_rows:
                columns = [(relation.column(f.name), f.type) for f in self._source.keys]
                batches = session.find(relation, selection, columns, keys)
                found = [fitted(batch.columns, selection, relation) for batch in batches if batch.num_rows]
        except ConnectorError:
            self.close()
            raise
        if not found:
            return [pa.array([], f.type.arrow) for f in self._fields]
        return found[0] if len(found) == 1 else [pa.concat_arrays(parts) for parts in zip(*found, strict=True)]

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
