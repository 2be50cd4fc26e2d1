"""Messages of PostgreSQL's output plug-in `pgoutput`, protocol version 1: transactions, and the changes in them, many at a time.

A transaction comes when it has been committed, all of it at once; what was rolled back does not come. The layout is that of "Logical
Replication Message Formats" and "Streaming Replication Protocol" in PostgreSQL's documentation. Messages are joined to one array of bytes,
and a step of reading is done for all rows at the same time: no Python runs for a single one of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowrun.connectors.postgres_cdc.rows import texts_at
from flowrun.core.arrays import Bytes, Integers
from flowrun.core.record import record
from flowrun.errors import ConnectorError

INSERT, UPDATE, DELETE, BEGIN, COMMIT, RELATION, TRUNCATE = b"IUDBCRT"
KEEPALIVE = 0
"""What stands for the kind of a message by which the server says how far it is."""
TEXT, NULL, UNCHANGED = b"tnu"
"""Kinds of values. One that is unchanged was not sent, as it is stored apart from its row (TOAST) and the update left it as it was."""

_HEADER_BYTES = 25
"""Of a message of the plug-in, as the stream carries it: w, the place in the log, its end, time."""
_KEEPALIVE = struct.Struct(">cQqB")
_PADDING = bytes(8)
"""Behind the last message, so that a number may be read there before it is known that there is none."""
_LEAST_BYTES = np.full(256, -1)
"""Of a message of each kind that there is."""
_LEAST_BYTES[np.frombuffer(b"IUDBCRTYOM", np.uint8)] = [8, 8, 8, 21, 26, 9, 6, 1, 1, 1]
_LEAST_BYTES[KEEPALIVE] = 18
_OID = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">I")


@record(eq=False)
class Messages:
    """Messages of the stream, in their order.

    Attributes:
        data: their bytes behind each other, and some more.
        starts: where each begins; of a message of the plug-in where its kind stands.
        ends: where each is over.
        kinds: of the plug-in's messages, as it writes them; `KEEPALIVE` for those of the server itself.
        end_lsn: the highest place in the log that they name.
        sent_lsn: up to where the server had sent all there was, when it last said so; 0: it did not.
        wants_reply: whether the server asks how far the reader is.
    """

    data: Bytes
    starts: Integers
    ends: Integers
    kinds: Bytes
    end_lsn: int
    sent_lsn: int
    wants_reply: bool

    def message(self, index: int) -> bytes:
        """The bytes of one message."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()


def join_messages(messages: Sequence[Any]) -> Messages:
    """What the stream has carried.

    Args:
        messages: bytes, or what can be joined with them; at least one.

    Raises:
        ConnectorError: a message is not of the protocol.
    """
    data = np.frombuffer(b"".join([*messages, _PADDING]), np.uint8)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    carriers = data[starts]
    is_log = carriers == ord("w")
    is_wrong = (~is_log & (carriers != ord("k"))) | (lengths < np.where(is_log, _HEADER_BYTES + 1, _KEEPALIVE.size))
    if is_wrong.any():
        raise _unreadable(bytes(messages[int(np.argmax(is_wrong))]), "unknown kind")
    kinds = np.where(is_log, data[np.where(is_log, starts + _HEADER_BYTES, 0)], KEEPALIVE).astype(np.uint8)
    least = _LEAST_BYTES[kinds]
    is_wrong = (least < 0) | (lengths - np.where(is_log, _HEADER_BYTES, 0) < least)
    if is_wrong.any():
        raise _unreadable(bytes(messages[int(np.argmax(is_wrong))])[_HEADER_BYTES:], "unknown or cut")
    lsns = _numbers(data, ">u8")[starts + np.where(is_log, 9, 1)]
    sent_lsn = int(lsns[~is_log].max(initial=0))
    wants_reply = bool(data[starts[~is_log] + _KEEPALIVE.size - 1].any())
    begins = np.where(is_log, starts + _HEADER_BYTES, starts)
    return Messages(data, begins, ends, kinds, int(lsns.max()), sent_lsn, wants_reply)


def _unreadable(message: bytes, why: str) -> ConnectorError:
    return ConnectorError(f"a message of the replication stream cannot be read: {why}: {message[:40]!r}")


def _numbers(data: Bytes, kind: str) -> NDArray[Any]:
    """The number that begins at each byte."""
    size = np.dtype(kind).itemsize
    return np.ndarray((len(data) - size + 1,), kind, data, strides=(1,))


def committed_to(messages: Messages, index: int) -> int:
    """Where the log goes on behind the transaction that this message commits."""
    return int(_numbers(messages.data, ">u8")[messages.starts[index] + 10])


@record
class ReplicatedTable:
    """A table as the server describes it before its first change.

    Attributes:
        oid: its number.
        schema_name: where it is.
        table_name: without its schema.
        columns: their names, in the order in which values come.
        identity: those whose old values come with updates and deletes: of the replica identity.
    """

    oid: int
    schema_name: str
    table_name: str
    columns: tuple[str, ...]
    identity: frozenset[str]


def read_table(message: bytes) -> ReplicatedTable:
    """The table that a message describes. Raises ConnectorError."""
    try:
        (oid,) = _OID.unpack_from(message, 1)
        schema, at = _name(message, 5)
        name, at = _name(message, at)
        (count,) = _COUNT.unpack_from(message, at + 1)
        at += 3
        columns, identity = [], []
        for _ in range(count):
            flags = message[at]
            column, at = _name(message, at + 1)
            columns.append(column)
            if flags & 1:
                identity.append(column)
            at += 8
        if at != len(message):
            raise ValueError("cut")
    except (struct.error, IndexError, ValueError) as error:
        raise _unreadable(message, str(error)) from error
    return ReplicatedTable(oid, schema, name, tuple(columns), frozenset(identity))


def _name(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def read_truncated(message: bytes) -> tuple[int, ...]:
    """The numbers of the tables all of whose rows were removed. Raises ConnectorError."""
    try:
        (count,) = _LENGTH.unpack_from(message, 1)
        return struct.unpack_from(f">{count}I", message, 6)
    except struct.error as error:
        raise _unreadable(message, str(error)) from error


@record(eq=False)
class Values:
    """Values of some columns in some rows, as places in the bytes of messages.

    Attributes:
        kinds: TEXT, NULL or UNCHANGED; shape (columns, rows).
        starts: where texts begin.
        ends: where they are over; where they begin if there is none.
    """

    kinds: Bytes
    starts: Integers
    ends: Integers

    def texts(self, data: Bytes, column: int) -> pa.BinaryArray:
        """The texts of one column; NULL for what is none."""
        return texts_at(data, self.starts[column], self.ends[column], self.kinds[column] == TEXT)

    def taken(self, rows: Integers) -> Values:
        """Those of some rows."""
        return Values(self.kinds[:, rows], self.starts[:, rows], self.ends[:, rows])

    def without_unchanged(self, rows: Integers, other: Values) -> Values:
        """With the values of `other`, whose rows are these `rows`, where they are unchanged."""
        is_unchanged = self.kinds[:, rows] == UNCHANGED
        if not is_unchanged.any():
            return self
        kinds, starts, ends = self.kinds.copy(), self.starts.copy(), self.ends.copy()
        kinds[:, rows] = np.where(is_unchanged, other.kinds, kinds[:, rows])
        starts[:, rows] = np.where(is_unchanged, other.starts, starts[:, rows])
        ends[:, rows] = np.where(is_unchanged, other.ends, ends[:, rows])
        return Values(kinds, starts, ends)

    def followed_by(self, other: Values, order: Integers) -> Values:
        """The rows of both, in an order."""
        return Values(
            np.concatenate((self.kinds, other.kinds), axis=1)[:, order],
            np.concatenate((self.starts, other.starts), axis=1)[:, order],
            np.concatenate((self.ends, other.ends), axis=1)[:, order],
        )


@record(eq=False)
class Changes:
    """Changes of rows of one table.

    Attributes:
        messages: the index of each.
        kinds: INSERT, UPDATE or DELETE.
        values: of the row; of a deleted one those of the replica identity at least.
        updated: changes that tell values of the row before, too.
        old: these values.
    """

    messages: Integers
    kinds: Bytes
    values: Values
    updated: Integers
    old: Values


def table_numbers(messages: Messages, changes: Integers) -> Integers:
    """The number of the table of each change."""
    return _numbers(messages.data, ">u4")[messages.starts[changes] + 1].astype(np.int64)


def read_changes(messages: Messages, changes: Integers, columns: int, wanted: Sequence[int]) -> Changes:
    """Changes of one table.

    Args:
        messages: with others between them.
        changes: the indices of the changes.
        columns: how many the table has.
        wanted: places of the columns that are read.

    Raises:
        ConnectorError: a message is not of this protocol.
    """
    data, ends = messages.data, messages.ends[changes]
    kinds = messages.kinds[changes]
    at = messages.starts[changes] + 5
    try:
        updated = np.flatnonzero((kinds == UPDATE) & (data[at] != ord("N")))
        old, behind = _read_rows(data, at[updated] + 1, columns, wanted)
        at[updated] = behind
        is_marked = np.isin(data[at], np.frombuffer(b"KO", np.uint8)) == (kinds == DELETE)
        values, behind = _read_rows(data, at + 1, columns, wanted)
        is_right = is_marked & (behind == ends)
        if is_right.all():
            return Changes(changes, kinds, values, updated, old)
        first = int(np.argmin(is_right))
    except (IndexError, _WrongRowError) as error:
        raise ConnectorError(f"a message of the replication stream cannot be read: {error}") from None
    raise _unreadable(messages.message(int(changes[first])), "it has not the columns of its table")


class _WrongRowError(ValueError):
    """The values of a row are not of the protocol."""


def _read_rows(data: Bytes, at: Integers, columns: int, wanted: Sequence[int]) -> tuple[Values, Integers]:
    """The values of rows that begin at these places, and the places behind them."""
    if not (_numbers(data, ">u2")[at] == columns).all():
        raise _WrongRowError(f"a row has not {columns} values")
    lengths = _numbers(data, ">u4")
    kinds = np.empty((columns, len(at)), np.uint8)
    starts = np.empty((columns, len(at)), np.int64)
    ends = np.empty((columns, len(at)), np.int64)
    at = at + 2
    for column in range(columns):
        kinds[column] = data[at]
        is_text = kinds[column] == TEXT
        if not (is_text | (kinds[column] == NULL) | (kinds[column] == UNCHANGED)).all():
            raise _WrongRowError("a value is of an unknown kind")
        starts[column] = at + np.where(is_text, 5, 1)
        at = starts[column] + np.where(is_text, lengths[at + 1], 0)
        ends[column] = at
    chosen = list(wanted)
    return Values(kinds[chosen], starts[chosen], ends[chosen]), at
