"""Looks up rows in a table of a database: one query for all keys of a batch."""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.lookup import FoundRows, Lookup, LookupContext
from flowrun.connectors.asked_keys import AskedKeys
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.fitting import fitted, selection_of
from flowrun.connectors.jdbc.relation import Access, Dialect, MisfitError, ReadSession, Relation, Selection
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
    def in_process_remedy(self) -> str:
        """What lets it be read in several processes."""
        return (
            f"if nobody writes to it, say that: 'url' = 'jdbc:{self.access.address.scheme}:path;access_mode=READ_ONLY'"
        )

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
                self._check_keys(relation)
            except BaseException:
                session.close()
                raise
            self._session, self._relation, self._selection = session, relation, selection
        return self._session, self._relation, self._selection

    def _check_keys(self, relation: Relation) -> None:
        for key in self._source.keys:
            column = relation.column(key.name)
            try:
                self._dialect.check_key(column, key.type)
            except MisfitError as error:
                raise ConnectorError(
                    f"column '{key.name}' of {relation.name} is {column.shown}, by which a {key.type} cannot be looked up",
                    retryable=False,
                    hint=str(error),
                ) from None

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """The rows with these keys.

        Raises:
            ConnectorError: the database failed; the next call connects anew.
            DataError: a value is not as declared.
        """
        asked = AskedKeys(keys)
        found = self._ask(asked.distinct)
        wanted = len(self._source.schema)
        owners = asked.owners(found[wanted:])  # −1: equal for the database only, as by a collation
        rows = pa.RecordBatch.from_arrays(found[:wanted], schema=self._source.schema.arrow) if wanted else None
        positions, probe = asked.spread(owners)
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
