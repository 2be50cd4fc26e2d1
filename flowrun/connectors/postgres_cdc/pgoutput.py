"""Messages of PostgreSQL's output plug-in `pgoutput`, protocol version 1: transactions, and the changes in them.

A transaction comes when it has been committed, all of it at once; what was rolled back does not come. The layout is that of "Logical
Replication Message Formats" in PostgreSQL's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from flowrun.core.elements import RowKind
from flowrun.core.record import record
from flowrun.errors import ConnectorError

_BEGIN = struct.Struct(">QqI")
"""Final LSN of the transaction, time of the commit (µs since 2000), number of the transaction."""
_COMMIT = struct.Struct(">BQQq")
"""Flags, LSN of the commit, LSN of its end, time."""
_OID = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_INSERT, _DELETE, _UPDATE = int(RowKind.INSERT), int(RowKind.DELETE), int(RowKind.UPDATE_AFTER)

EPOCH_MS = 946_684_800_000
"""2000-01-01, from where PostgreSQL counts, in ms since 1970."""

Values = list["bytes | Unchanged | None"]


class Unchanged:
    """A value that was not sent, because it is stored apart from its row (TOAST) and the update left it as it was."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()


@record
class ReplicatedTable:
    """A table as the server describes it before its first change.

    Attributes:
        oid: its number.
        name: with its schema.
        columns: their names, in the order in which values come.
        has_whole_old_rows: REPLICA IDENTITY FULL: updates and deletes come with all values of the row before.
    """

    oid: int
    name: str
    columns: tuple[str, ...]
    has_whole_old_rows: bool


@record
class Begin:
    """A transaction begins."""

    commit_lsn: int
    commit_time_ms: int


@record
class Commit:
    """A transaction is over; `end_lsn` is where the log goes on behind it."""

    end_lsn: int


@record
class Change:
    """A change of one row, as upserts: `old` is the row to delete before `new` is set, if any.

    Attributes:
        table: the number of the table.
        kind: INSERT, UPDATE_AFTER or DELETE.
        values: of the row, in the order of the table's columns; of a deleted one those of its key at least.
        old: for an update that changed the key, or with whole old rows: the values before.
    """

    table: int
    kind: int
    values: Sequence[bytes | Unchanged | None]
    old: Sequence[bytes | Unchanged | None] | None = None


@record
class Truncate:
    """All rows of these tables were removed."""

    tables: tuple[int, ...]


Message = Begin | Commit | Change | Truncate | ReplicatedTable | None


def read_message(data: bytes) -> Message:
    """One message; None: one that says nothing of rows (types, origins, messages of users).

    Raises:
        ConnectorError: it is not of this protocol.
    """
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as error:
        raise ConnectorError(f"a message of the replication stream cannot be read: {error}: {data[:40]!r}") from error


def _read(data: bytes) -> Message:
    kind = data[:1]
    if kind == b"I":
        values, _ = _tuple(data, 6)
        return Change(_OID.unpack_from(data, 1)[0], _INSERT, values)
    if kind == b"U":
        return _update(data)
    if kind == b"D":
        values, _ = _tuple(data, 6)
        return Change(_OID.unpack_from(data, 1)[0], _DELETE, values)
    if kind == b"B":
        lsn, time_us, _ = _BEGIN.unpack_from(data, 1)
        return Begin(lsn, EPOCH_MS + time_us // 1000)
    if kind == b"C":
        return Commit(_COMMIT.unpack_from(data, 1)[2])
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        (count,) = _LENGTH.unpack_from(data, 1)
        return Truncate(struct.unpack_from(f">{count}I", data, 6))
    if kind in (b"Y", b"O", b"M"):
        return None
    raise ValueError(f"unknown kind {kind!r}")


def _update(data: bytes) -> Change:
    (table,) = _OID.unpack_from(data, 1)
    mark, at, old = data[5:6], 6, None
    if mark in (b"K", b"O"):
        old, at = _tuple(data, at)
        mark, at = data[at : at + 1], at + 1
    if mark != b"N":
        raise ValueError(f"an update with a part {mark!r}")
    values, _ = _tuple(data, at)
    return Change(table, _UPDATE, values, old)


def _tuple(data: bytes, at: int) -> tuple[Values, int]:
    """The values of a row that begins at this place, and the place behind it."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: Values = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t: text
            (size,) = _LENGTH.unpack_from(data, at)
            at += 4
            values.append(data[at : at + size])
            at += size
        elif kind == 0x6E:  # n: NULL
            values.append(None)
        elif kind == 0x75:  # u: unchanged
            values.append(UNCHANGED)
        else:
            raise ValueError(f"a value of kind {kind:#x}")
    return values, at


def _relation(data: bytes) -> ReplicatedTable:
    (oid,) = _OID.unpack_from(data, 1)
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    identity = data[at : at + 1]
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        column, at = _name(data, at + 1)
        columns.append(column)
        at += 8
    return ReplicatedTable(oid, f"{schema}.{name}", tuple(columns), identity == b"f")


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1
