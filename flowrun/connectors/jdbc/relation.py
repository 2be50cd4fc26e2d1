"""Tables as a database itself describes them, and what the code for each kind of database has to do.

A source, lookup or sink knows its table as the user declared it; what is really there is looked at when a job starts. A `Dialect` says
how the one is had from the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Protocol

import pyarrow as pa

from flowrun.api.client_library import ClientLibrary
from flowrun.api.connector import PushedFilter
from flowrun.api.sink import RowCheck
from flowrun.connectors.jdbc.address import Address
from flowrun.core.arrays import Bools
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType
from flowrun.errors import ConnectorError, did_you_mean
from flowrun.masking import learn_secret

DEFAULT_SILENCE_S = 60.0


@record
class Access:
    """Which table of which database, and who asks for it; can be pickled.

    Attributes:
        address: of the database.
        table: the name as the user wrote it, perhaps with a schema before it.
        user: None: the library's own default.
        password: shown nowhere.
        silence_s: after how many seconds without an answer a connection is given up.
    """

    address: Address
    table: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    silence_s: float = DEFAULT_SILENCE_S

    def learn_secrets(self) -> None:
        """Mask the password in this process, which may be another than the one that read the options."""
        for secret in (self.password, self.address.password):
            if secret:
                learn_secret(secret)


@record
class ServerColumn:
    """A column as the database has it.

    Attributes:
        name: as the database spells it.
        kind: the name of its type, without what a domain or length adds to it: `int8`, `_text`.
        shown: its type as people write it: `numeric(10,2)`.
        scale: of a decimal number; None: it has none of its own.
        is_generated: whether the database computes its values from other columns.
    """

    name: str
    kind: str
    shown: str
    scale: int | None = None
    is_generated: bool = False


@record
class Piece:
    """A part of a relation that is read by one query after the other, in an order that can be gone on with.

    Attributes:
        relation: its name, quoted.
        by_place: whether rows have places in it that stay the same while they are not changed. If not, it cannot be read on from the
            middle.
        units: how many units of storage it has (blocks, places); ranges of them are splits.
        first_unit: the number of the first of them.
        units_a_split: how many of them a split has at most.
        least_units: fewer are worth no split of their own.
    """

    relation: str
    by_place: bool
    units: int = 0
    first_unit: int = 0
    units_a_split: int = 8_192
    least_units: int = 64


@record
class Relation:
    """A table or view.

    Attributes:
        name: quoted, with its schema.
        columns: all of them, by name.
        pieces: what to read to have all rows.
        unique_keys: the columns of each unique index.
        place: the expression for the place of a row in its piece; empty: rows have none.
        ignores_case: whether the database holds names equal that differ in case only.
    """

    name: str
    columns: dict[str, ServerColumn]
    pieces: tuple[Piece, ...] = ()
    unique_keys: tuple[frozenset[str], ...] = ()
    place: str = ""
    ignores_case: bool = False

    def column(self, name: str) -> ServerColumn:
        """The column that a declared name stands for: this spelling, else the same in lower case, or in any if the database ignores that.

        Raises:
            ConnectorError: there is none; lists near matches.
        """
        found = self.columns.get(name) or self.columns.get(name.lower())
        if found is None and self.ignores_case:
            found = next((c for n, c in self.columns.items() if n.lower() == name.lower()), None)
        if found is None:
            raise ConnectorError(
                f"table {self.name} has no column '{name}'",
                retryable=False,
                hint=did_you_mean(name, self.columns) or "compare the declared columns with those of the table",
            )
        return found


@record
class Selection:
    """What a query selects for columns of declared types.

    Attributes:
        text: the expressions, between commas.
        fields: what they are read as, in the same order; names may occur twice.
        guarded: whether one more column follows that says which of them holds a value of another type, if any does: its number, from
            1; else 0. That is for databases whose columns hold values of any type.
    """

    text: str
    fields: tuple[Field, ...]
    guarded: bool = False


@record
class Scan:
    """Rows of one piece, in the order of their places if they have any.

    Attributes:
        source: the piece, quoted.
        selection: the columns.
        place: the expression for the place of a row, which is selected before the columns; empty: rows have none.
        lower: from this unit of storage on; None: from the first.
        upper: up to, without, this unit; None: up to the last.
        after: behind this place; None: from the first.
        conditions: for rows that are wanted.
    """

    source: str
    selection: Selection
    place: str = ""
    lower: int | None = None
    upper: int | None = None
    after: int | None = None
    conditions: tuple[str, ...] = ()

    @property
    def by_row_id(self) -> tuple[str, ...]:
        """The conditions for places and units, where both are the ids of rows."""
        ends = ((">=", self.lower), ("<", self.upper), (">", self.after))
        return tuple(f"{self.place} {comparison} {value}" for comparison, value in ends if value is not None)


class MisfitError(ValueError):
    """A column of the database cannot be read as the declared type; says why, if there is more to say."""


class ReadSession(Protocol):
    """A connection that reads; used by one thread at a time, but for `cancel`."""

    def describe(self) -> Relation:
        """The table of the access. Raises ConnectorError if there is none."""
        ...

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The rows of a scan, in batches of any size: their places, if they have any, and what is selected. Raises ConnectorError."""
        ...

    def find(
        self,
        relation: Relation,
        selection: Selection,
        keys: Sequence[tuple[ServerColumn, DataType]],
        asked: pa.RecordBatch,
    ) -> Iterator[pa.RecordBatch]:
        """What is selected of all rows with one of the keys, each of which occurs once, by one query. Raises ConnectorError."""
        ...

    def cancel(self) -> None:
        """Let go of what another thread is waiting for."""
        ...

    def close(self) -> None:
        """Disconnect; idempotent, does not wait for a server that hangs."""
        ...


class WriteSession(Protocol):
    """A connection that writes in transactions; used by one thread."""

    def describe(self) -> Relation:
        """The table of the access. Raises ConnectorError if there is none."""
        ...

    def append(self, rows: pa.RecordBatch) -> None:
        """Insert rows, in the transaction that is open, or that it opens."""
        ...

    def upsert(self, rows: pa.RecordBatch, deletes: Bools, keys: Sequence[str]) -> None:
        """Insert or replace rows, or where `deletes` is true remove those of their keys; each key occurs once."""
        ...

    def committed_number(self, writer: str) -> int:
        """The number that is recorded for a writer of a staged sink, 0 if there is none, once no other transaction may change it."""
        ...

    def record_number(self, writer: str, number: int) -> bool:
        """Record a higher number for a writer in the transaction that is open, or that it opens.

        Waits for another transaction that does so. False: this number or a higher one is recorded already, and nothing is changed.
        """
        ...

    def commit(self) -> None:
        """Make visible what was written since the last commit."""
        ...

    def close(self) -> None:
        """Roll back what was not committed, and disconnect; idempotent."""
        ...


class Dialect(Protocol):
    """How one kind of database is spoken to. All errors of its libraries come out as `ConnectorError` or `DataError`."""

    @property
    def client(self) -> ClientLibrary | None:
        """What must be installed."""
        ...

    def in_process(self, access: Access) -> bool:
        """Whether all that a job does with the database must happen in one process."""
        ...

    def row_check(self) -> RowCheck | None:
        """Finds values that the database cannot hold, before they are written; None: it holds all."""
        ...

    def check_written(self, schema: Schema) -> None:
        """Pass if columns of these types can be written at all. Raises OptionError; does no I/O."""
        ...

    def check_column(self, column: ServerColumn, declared: DataType) -> None:
        """Pass if the database keeps values of a type as they are, or refuses them, in a column. Raises MisfitError."""
        ...

    def check_key(self, column: ServerColumn, declared: DataType) -> None:
        """Pass if rows can be looked up by a column. Raises MisfitError."""
        ...

    def describe(self, access: Access) -> Relation:
        """The table, looked at over a connection of its own. Raises ConnectorError."""
        ...

    def open_reader(self, access: Access, *, in_order: bool = False) -> ReadSession:
        """Connect; `in_order`: pieces are read in the order of the places in them. Raises ConnectorError."""
        ...

    def open_writer(self, access: Access) -> WriteSession:
        """Connect. Raises ConnectorError."""
        ...

    def expression(self, column: ServerColumn, declared: DataType) -> str:
        """What to select for a column so that `fit` gives the declared type. Raises MisfitError."""
        ...

    def guard(self, relation: Relation, fields: Sequence[Field]) -> str | None:
        """The expression of a guard (`Selection.guarded`); None: columns hold values of their types only."""
        ...

    def condition(self, column: ServerColumn, declared: DataType, pushed: PushedFilter) -> str | None:
        """A condition that is true for every row for which the filter is; None: the database cannot say it."""
        ...

    def places_of(self, column: pa.Array) -> pa.Int64Array:
        """Places as numbers that rise in the order of reading."""
        ...

    def bound(self, column: ServerColumn, value: int) -> str:
        """A bound of `scan.partition.*` as a literal of the column's type. Raises MisfitError."""
        ...
