"""Messages of the log without a server: any cut of them into batches gives the same rows, and nonsense is told."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

import pytest

from flowrun.connectors.postgres_cdc.pgoutput import join_messages
from flowrun.connectors.postgres_cdc.transactions import ChangeAssembler, LoggedTable, LogPlace
from flowrun.core import types as t
from flowrun.core.elements import RowKind
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError

OID, OTHER = 77, 78
SCHEMA = Schema.of(id=t.BIGINT, name=t.STRING)
COLUMNS = ("name", "extra", "id")
"""Of the table: in another order than those that are declared, and more of them."""

Row = tuple[int, "str | None", "str | None"]
Given = tuple[str, int, "str | None"]
"""What a reader gets of a row: kind, id, name."""


def message(body: bytes, lsn: int = 0) -> bytes:
    return struct.pack(">cQQq", b"w", lsn, lsn, 0) + body


def keepalive(lsn: int, *, wants_reply: bool = False) -> bytes:
    return struct.pack(">cQqB", b"k", lsn, 0, wants_reply)


def values(row: Sequence[str | bytes | None]) -> bytes:
    """A row: texts, NULL, or bytes of one letter for another kind of value."""
    found = struct.pack(">H", len(row))
    for value in row:
        if value is None:
            found += b"n"
        elif isinstance(value, bytes):
            found += value
        else:
            found += b"t" + struct.pack(">I", len(value.encode())) + value.encode()
    return found


def described(
    oid: int = OID, name: str = "t", identity: Sequence[str] = ("id",), columns: Sequence[str] = COLUMNS
) -> bytes:
    body = b"R" + struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0d" + struct.pack(">H", len(columns))
    for column in columns:
        body += bytes([column in identity]) + column.encode() + b"\0" + struct.pack(">Ii", 25, -1)
    return body


def insert(row: Row, oid: int = OID) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + values(stored(row))


def update(row: Row, old: bytes = b"", oid: int = OID) -> bytes:
    return b"U" + struct.pack(">I", oid) + old + b"N" + values(stored(row))


def delete(key: int, oid: int = OID) -> bytes:
    return b"D" + struct.pack(">I", oid) + b"K" + values([None, None, str(key)])


def stored(row: Row) -> list[str | bytes | None]:
    return [row[1], row[2], str(row[0])]


def begin() -> bytes:
    return b"B" + struct.pack(">QqI", 0, 0, 1)


def commit(end: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, end - 1, end, 0)


def transactions(seed: int) -> tuple[list[bytes], list[Given]]:
    """Messages of a random stream, and what is to be read of them."""
    chance, lsn = random.Random(seed), 100
    sent: list[bytes] = []
    wanted: list[Given] = []
    sent.append(message(begin()))
    sent.append(message(described()))
    for number in range(30):
        if number:
            sent.append(message(begin(), lsn))
        for _ in range(chance.choice((0, 1, 3, 40))):
            row = (chance.randrange(50), chance.choice((None, "", "näme", "x" * 300)), chance.choice((None, "more")))
            kind = chance.randrange(7)
            if kind == 0:
                sent.append(message(delete(row[0]), lsn))
                wanted.append(("-D", row[0], None))
            elif kind == 1:
                old = chance.randrange(50)
                sent.append(message(update(row, b"K" + values([None, None, str(old)])), lsn))
                if old != row[0]:
                    wanted.append(("-D", old, None))
                wanted.append(("+U", row[0], row[1]))
            elif kind == 2:
                old_row = (row[0], "the old name", "old")
                body = (
                    b"U"
                    + struct.pack(">I", OID)
                    + b"O"
                    + values(stored(old_row))
                    + b"N"
                    + values([b"u", row[2], str(row[0])])
                )
                sent.append(message(body, lsn))
                wanted.append(("+U", row[0], "the old name"))
            elif kind == 3:
                sent.append(message(insert(row, OTHER), lsn))
            elif kind == 4:
                sent.append(message(update(row), lsn))
                wanted.append(("+U", row[0], row[1]))
            else:
                sent.append(message(insert(row), lsn))
                wanted.append(("+I", row[0], row[1]))
        if chance.random() < 0.1:
            sent.append(message(described(OTHER, "other")))
        if chance.random() < 0.1:
            sent.append(message(b"T" + struct.pack(">IBI", 1, 0, OTHER)))
        lsn += 10
        sent.append(message(commit(lsn), lsn))
        if chance.random() < 0.3:
            lsn += 5
            sent.append(keepalive(lsn))
    return sent, wanted


def assembler(place: LogPlace, *, ignores_truncate: bool = False) -> ChangeAssembler:
    table = LoggedTable(OID, "public", "t")
    return ChangeAssembler(table, SCHEMA, ("id",), place, ignores_truncate=ignores_truncate)


def taken(given: ChangeAssembler) -> list[Given]:
    if not given.waiting:
        return []
    batch = given.take()
    assert batch.row_kinds is not None
    kinds = [RowKind(kind).symbol for kind in batch.row_kinds.to_pylist()]
    return [(kind, row["id"], row["name"]) for kind, row in zip(kinds, batch.columns.to_pylist(), strict=True)]


def batches(sent: Sequence[bytes], chance: random.Random) -> Iterator[Sequence[bytes]]:
    start = 0
    while start < len(sent):
        size = chance.choice((1, 2, 5, 100))
        yield sent[start : start + size]
        start += size


def sent_from(sent: Sequence[bytes], lsn: int) -> list[bytes]:
    """As the server sends it again: whole transactions behind a place, and the table before the first change of it."""
    found = [message(described())]
    waiting: list[bytes] = []
    for one in sent:
        waiting.append(one)
        if one[25:26] == b"C" or one[:1] == b"k":
            end = struct.unpack_from(">Q", one, 35 if one[:1] == b"w" else 1)[0]
            if end > lsn:
                found += waiting
            waiting = []
    return found


@pytest.mark.parametrize("seed", range(20))
def test_any_batches_and_any_restart_give_the_same_rows(seed: int) -> None:
    sent, wanted = transactions(seed)
    chance = random.Random(seed + 1000)
    found: list[Given] = []
    reading, left = assembler(LogPlace(100)), list(batches(sent, chance))
    while left:
        messages = join_messages(left.pop(0))
        reading.add(messages)
        reading.advance(messages.sent_lsn)
        found += taken(reading)
        if chance.random() < 0.1:
            place = reading.place
            reading, left = assembler(place), list(batches(sent_from(sent, place.lsn), chance))
    assert found == wanted


def test_a_keepalive_within_a_transaction_does_not_move_the_place() -> None:
    reading = assembler(LogPlace(100))
    messages = join_messages(
        [message(begin()), message(described()), message(insert((1, "a", None))), keepalive(500, wants_reply=True)]
    )
    assert messages.wants_reply
    reading.add(messages)
    reading.advance(messages.sent_lsn)
    assert reading.place == LogPlace(100, 1)


def test_a_value_that_is_stored_apart_is_told() -> None:
    body = b"U" + struct.pack(">I", OID) + b"N" + values([b"u", None, "1"])
    with pytest.raises(DataError, match="without the value of column 'name'"):
        assembler(LogPlace(0)).add(join_messages([message(described()), message(begin()), message(body)]))


@pytest.mark.parametrize("ignores", [False, True])
def test_truncate_of_the_table(ignores: bool) -> None:
    reading = assembler(LogPlace(0), ignores_truncate=ignores)
    sent = [
        message(described()),
        message(begin()),
        message(insert((1, "a", None))),
        message(b"T" + struct.pack(">IBII", 2, 0, OTHER, OID)),
    ]
    if ignores:
        reading.add(join_messages([*sent, message(insert((2, "b", None)))]))
        assert taken(reading) == [("+I", 1, "a"), ("+I", 2, "b")]
    else:
        with pytest.raises(ConnectorError, match=r"public\.t was truncated"):
            reading.add(join_messages(sent))


@pytest.mark.parametrize(
    "body",
    [
        insert((1, "name", "more")),
        update((1, "name", "more"), b"K" + values([None, None, "2"])),
        update((1, "name", "more"), b"O" + values(["old", "more", "1"])),
        delete(1),
        described(),
        b"T" + struct.pack(">IBI", 1, 0, OID),
    ],
)
def test_a_message_that_is_cut_anywhere_is_told(body: bytes) -> None:
    for size in range(len(body)):
        reading = assembler(LogPlace(0))
        reading.add(join_messages([message(described()), message(begin())]))
        with pytest.raises(ConnectorError, match="cannot be read"):
            reading.add(join_messages([message(body[:size]), message(insert((1, "behind", "it")))]))


@pytest.mark.parametrize(
    "body", [b"Z", b"\xff123", insert((1, "a", "b"))[:-1] + b"\0\0", b"I" + struct.pack(">I", OID) + b"X"]
)
def test_what_is_not_of_the_protocol_is_told(body: bytes) -> None:
    reading = assembler(LogPlace(0))
    reading.add(join_messages([message(described()), message(begin())]))
    with pytest.raises(ConnectorError, match="cannot be read"):
        reading.add(join_messages([message(body)]))
    with pytest.raises(ConnectorError, match="cannot be read"):
        join_messages([b"d" + body])
