"""Puts the messages of the log together to batches of changes, each with the place in the log that it reaches."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.connectors.postgres_cdc.pgoutput import (
    Begin,
    Change,
    Commit,
    Message,
    ReplicatedTable,
    Truncate,
    Unchanged,
)
from flowrun.connectors.postgres_cdc.rows import change_batch
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError, did_you_mean

_UPDATE, _DELETE = int(RowKind.UPDATE_AFTER), int(RowKind.DELETE)


@record
class LogPlace:
    """Where reading goes on: behind a whole transaction, and so many rows of the next one.

    Attributes:
        lsn: the end of the last transaction whose rows were all read.
        skip: rows of the transaction behind it that were read, too.
    """

    lsn: int
    skip: int = 0


class ChangeAssembler:
    """Gathers changes of one table.

    Args:
        name: of the table, with its schema.
        schema: the columns wanted.
        keys: the columns of the primary key.
        place: where the log is read from.
        ignores_truncate: whether TRUNCATE is left out; else it is an error.
    """

    def __init__(
        self, name: str, schema: Schema, keys: Sequence[str], place: LogPlace, *, ignores_truncate: bool
    ) -> None:
        self._name = name
        self._schema = schema
        self._keys = keys
        self._ignores_truncate = ignores_truncate
        self._lsn = place.lsn
        self._skip = place.skip
        self._in_transaction = False
        self._seen = 0
        """Rows of this transaction so far, those that were skipped included."""
        self._tables: dict[int, tuple[ReplicatedTable, list[int], list[int]]] = {}
        self._rows: list[list[bytes | None]] = []
        self._kinds: list[int] = []

    @property
    def waiting(self) -> int:
        """Rows that are gathered."""
        return len(self._rows)

    @property
    def place(self) -> LogPlace:
        """What the gathered rows reach, with all that were taken before."""
        return LogPlace(self._lsn, self._seen if self._in_transaction else 0)

    def add(self, message: Message) -> None:
        """Take the next message.

        Raises:
            DataError: a value was not sent that is needed.
            ConnectorError: the table lacks a column by now, or was truncated.
        """
        match message:
            case Change():
                self._add_change(message)
            case Begin():
                self._in_transaction, self._seen = True, 0
            case Commit():
                self._in_transaction, self._lsn, self._seen, self._skip = False, message.end_lsn, 0, 0
            case ReplicatedTable():
                self._tables[message.oid] = (message, *self._places(message))
            case Truncate() if any(t in self._tables for t in message.tables) and not self._ignores_truncate:
                raise ConnectorError(
                    f"table {self._name} was truncated: which rows were removed is not in the log",
                    hint="start the pipeline afresh, or set 'truncate' = 'ignore' to keep the rows downstream",
                )

    def advance(self, lsn: int) -> bool:
        """The log is read up to here, and nothing of the table is on its way; False if that is known, or something is."""
        if self._in_transaction or self._rows or lsn <= self._lsn:
            return False
        self._lsn = lsn
        return True

    def _places(self, table: ReplicatedTable) -> tuple[list[int], list[int]]:
        found = []
        for name in (*self._schema.names, *self._keys):
            if name not in table.columns:
                raise ConnectorError(
                    f"table {table.name} has no column '{name}' any more",
                    hint=did_you_mean(name, table.columns) or "adapt the pipeline, and start it afresh",
                )
            found.append(table.columns.index(name))
        return found[: len(self._schema)], found[len(self._schema) :]

    def _add_change(self, change: Change) -> None:
        known = self._tables.get(change.table)
        if known is None:
            return
        _, places, keys = known
        values, old = change.values, change.old
        if change.kind == _UPDATE and old is not None:
            if any(not isinstance(values[k], Unchanged) and old[k] != values[k] for k in keys):
                self._put([_known(old[p]) for p in places], _DELETE)
            values = [o if isinstance(v, Unchanged) else v for v, o in zip(values, old, strict=True)]
        row = [values[p] for p in places]
        if change.kind != _DELETE and any(isinstance(v, Unchanged) for v in row):
            column = self._schema.names[next(i for i, v in enumerate(row) if isinstance(v, Unchanged))]
            raise DataError(
                f"an update of table {self._name} comes without the value of column '{column}', which is stored apart (TOAST) and was not "
                "changed",
                hint=f"ALTER TABLE {self._name} REPLICA IDENTITY FULL, and start the pipeline afresh, or do not declare the column",
            )
        self._put([_known(v) for v in row], change.kind)

    def _put(self, row: list[bytes | None], kind: int) -> None:
        self._seen += 1
        if self._seen > self._skip:
            self._rows.append(row)
            self._kinds.append(kind)

    def take(self) -> RecordBatch:
        """What is gathered, as one batch. Raises DataError."""
        rows, kinds = self._rows, self._kinds
        self._rows, self._kinds = [], []
        return change_batch(self._schema, rows, kinds, self._name)


def _known(value: bytes | Unchanged | None) -> bytes | None:
    return None if isinstance(value, Unchanged) else value
