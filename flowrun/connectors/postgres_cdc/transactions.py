"""Makes batches of changes of the messages of the log, each with the place in the log that it reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.postgres_cdc import pgoutput
from flowrun.connectors.postgres_cdc.database import check_key
from flowrun.connectors.postgres_cdc.pgoutput import Changes, Messages, ReplicatedTable, Values
from flowrun.connectors.postgres_cdc.rows import typed_rows
from flowrun.core.arrays import Bools, Bytes, Integers
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError, did_you_mean

_ROW_KINDS = np.zeros(256, np.int8)
_ROW_KINDS[[pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE]] = [RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE]


@record
class LogPlace:
    """Where reading goes on: behind a whole transaction, and so many rows of the next one.

    Attributes:
        lsn: the end of the last transaction whose rows were all read.
        skip: rows of the transaction behind it that were read, too.
    """

    lsn: int
    skip: int = 0


@record
class LoggedTable:
    """The table whose changes are read.

    Attributes:
        oid: the server's number of it.
        schema_name: where it is.
        table_name: without its schema.
    """

    oid: int
    schema_name: str
    table_name: str

    @property
    def name(self) -> str:
        """With its schema, for messages."""
        return f"{self.schema_name}.{self.table_name}"


class ChangeAssembler:
    """Gathers changes of one table.

    Args:
        table: the table; changes of others are left out.
        schema: the columns wanted.
        keys: the columns of the primary key.
        place: where the log is read from.
        ignores_truncate: whether TRUNCATE is left out; else it is an error.
    """

    def __init__(
        self, table: LoggedTable, schema: Schema, keys: Sequence[str], place: LogPlace, *, ignores_truncate: bool
    ) -> None:
        self._table = table
        self._schema = schema
        self._keys = keys
        self._ignores_truncate = ignores_truncate
        self._lsn = place.lsn
        self._skip = place.skip
        self._in_transaction = False
        self._seen = 0
        """Rows of this transaction so far, those that were skipped included."""
        self._columns = 0
        """How many the table has; 0 before the server has described it."""
        self._wanted: list[int] = []
        """The places of the columns of the schema, and behind them those of the keys."""
        self._gathered: list[RecordBatch] = []

    @property
    def waiting(self) -> int:
        """Rows that are gathered."""
        return sum(batch.num_rows for batch in self._gathered)

    @property
    def place(self) -> LogPlace:
        """What the gathered rows reach, with all that were taken before."""
        return LogPlace(self._lsn, max(self._seen if self._in_transaction else 0, self._skip))

    def take(self) -> RecordBatch:
        """What is gathered, as one batch; at least one row must wait."""
        gathered, self._gathered = self._gathered, []
        if len(gathered) == 1:
            return gathered[0]
        columns = pa.concat_batches([batch.columns for batch in gathered])
        return RecordBatch(columns, None, pa.concat_arrays([batch.row_kinds for batch in gathered]))

    def advance(self, lsn: int) -> None:
        """The server has sent all up to here."""
        if not self._in_transaction:
            self._lsn = max(self._lsn, lsn)

    def add(self, messages: Messages) -> None:
        """Take the next messages.

        Raises:
            DataError: a value was not sent that is needed, or is not of the declared type.
            ConnectorError: the table lacks a column by now, was truncated or made anew, or a message is not of the protocol.
        """
        first = 0
        for index in np.flatnonzero(
            (messages.kinds == pgoutput.RELATION) | (messages.kinds == pgoutput.TRUNCATE)
        ).tolist():
            self._add_changes(messages, first, index)
            if messages.kinds[index] == pgoutput.RELATION:
                self._describe(pgoutput.read_table(messages.message(index)))
            elif self._table.oid in pgoutput.read_truncated(messages.message(index)) and not self._ignores_truncate:
                raise ConnectorError(
                    f"table {self._table.name} was truncated: which rows were removed is not in the log",
                    retryable=False,
                    hint="start the pipeline afresh, or set 'truncate' = 'ignore' to keep the rows downstream",
                )
            first = index + 1
        self._add_changes(messages, first, len(messages.kinds))

    def _describe(self, table: ReplicatedTable) -> None:
        if table.oid != self._table.oid:
            if (table.schema_name, table.table_name) == (self._table.schema_name, self._table.table_name):
                raise ConnectorError(
                    f"table {self._table.name} was dropped and made anew: the rows that were in it are not in the log as removed",
                    retryable=False,
                    hint="start the pipeline afresh, without the checkpoint",
                )
            return
        wanted = []
        for name in (*self._schema.names, *self._keys):
            if name not in table.columns:
                raise ConnectorError(
                    f"table {self._table.name} has no column '{name}' any more",
                    retryable=False,
                    hint=did_you_mean(name, table.columns) or "adapt the pipeline, and start it afresh",
                )
            wanted.append(table.columns.index(name))
        if table.identity:
            check_key(self._keys, table.identity, self._table.name)
        self._columns, self._wanted = len(table.columns), wanted

    def _add_changes(self, messages: Messages, first: int, stop: int) -> None:
        """Take messages that are changes, ends of transactions, or say nothing of rows."""
        kinds = messages.kinds[first:stop]
        changes = first + np.flatnonzero(
            (kinds == pgoutput.INSERT) | (kinds == pgoutput.UPDATE) | (kinds == pgoutput.DELETE)
        )
        if len(changes):
            changes = changes[pgoutput.table_numbers(messages, changes) == self._table.oid]
        rows = None
        of = changes
        if len(changes):
            rows, of = self._rows(messages, pgoutput.read_changes(messages, changes, self._columns, self._wanted))
        begins, commits = (
            first + np.flatnonzero(kinds == pgoutput.BEGIN),
            first + np.flatnonzero(kinds == pgoutput.COMMIT),
        )
        again = self._rows_again(of, begins, commits)
        if len(commits):
            self._lsn, self._skip = pgoutput.committed_to(messages, int(commits[-1])), 0
        if len(begins) and (not len(commits) or begins[-1] > commits[-1]):
            self._in_transaction, self._seen = True, int((of > begins[-1]).sum())
        elif len(commits):
            self._in_transaction, self._seen = False, 0
        else:
            self._seen += len(of)
        if rows is not None and again < len(of):
            self._gathered.append(rows if not again else rows.slice(again))

    def _rows_again(self, of: Integers, begins: Integers, commits: Integers) -> int:
        """How many rows, of these messages, are of the transaction that reading goes on in, and were read before."""
        if not self._skip:
            return 0
        before = 0 if len(begins) and (not len(commits) or begins[0] < commits[0]) else self._seen
        in_first = int((of < commits[0]).sum()) if len(commits) else len(of)
        return min(max(self._skip - before, 0), in_first)

    def _rows(self, messages: Messages, changes: Changes) -> tuple[RecordBatch, Integers]:
        """The rows of changes, and the message of each. A change of a key is a row that is deleted and one that is added."""
        columns = len(self._schema)
        values = changes.values.without_unchanged(changes.updated, changes.old)
        is_missing = (values.kinds[:columns] == pgoutput.UNCHANGED) & (changes.kinds != pgoutput.DELETE)
        if is_missing.any():
            raise self._stored_apart(self._schema.names[int(np.argmax(is_missing.any(axis=1)))])
        kinds, of = _ROW_KINDS[changes.kinds], changes.messages
        moved = self._moved(messages.data, values, changes)
        if moved.any():
            old = changes.old.taken(np.flatnonzero(moved))
            order = np.argsort(np.concatenate((np.arange(len(of)) * 2 + 1, changes.updated[moved] * 2)), kind="stable")
            values = values.followed_by(old, order)
            of = np.concatenate((of, of[changes.updated[moved]]))[order]
            kinds = np.concatenate((kinds, np.full(int(moved.sum()), RowKind.DELETE, np.int8)))[order]
        texts = [values.texts(messages.data, column) for column in range(columns)]
        return RecordBatch(typed_rows(self._schema, texts, self._table.name), None, pa.array(kinds, pa.int8())), of

    def _moved(self, data: Bytes, values: Values, changes: Changes) -> Bools:
        """Which of the updates that tell the row before have changed its key."""
        moved = np.zeros(len(changes.updated), np.bool_)
        if not len(moved):
            return moved
        new = values.taken(changes.updated)
        for key in range(len(self._schema), len(self._wanted)):
            differs = pc.not_equal(changes.old.texts(data, key), new.texts(data, key))
            moved |= pc.fill_null(differs, False).to_numpy(zero_copy_only=False)
        return moved

    def _stored_apart(self, column: str) -> DataError:
        return DataError(
            f"an update of table {self._table.name} comes without the value of column '{column}', which is stored apart (TOAST) and "
            "was not changed",
            hint=f"ALTER TABLE {self._table.name} REPLICA IDENTITY FULL, and start the pipeline afresh, or do not declare the column",
        )
