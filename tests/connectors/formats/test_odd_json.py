"""Odd JSON documents: what becomes of a record never depends on which records stand beside it, nor on which parser reads them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from flowrun.api.format import DecodedRecords, RecordChunk, lines_chunk, messages_chunk
from flowrun.connectors.formats.framing import LineFramer
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    STRING,
    TINYINT,
    array,
    decimal,
    row,
    time,
    timestamp,
    timestamp_ltz,
)

from .formats import decoder

SCHEMA = Schema.of(
    id=BIGINT,
    small=TINYINT,
    user=STRING,
    amount=DOUBLE,
    ok=BOOLEAN,
    ts=timestamp(3),
    at=timestamp_ltz(3),
    day=DATE,
    hour=time(3),
    raw=BYTES,
    price=decimal(10, 2),
    r=row(("x", BIGINT), ("y", STRING), ("z", row(("w", STRING)))),
    list=array(BIGINT),
    absent=STRING,
)
FIELDS: dict[str, Callable[[int], str]] = {
    "id": lambda i: str(i * 7919 % 100_000_007),
    "small": lambda i: str(i % 128),
    "user": lambda i: f'"user-{i % 17}"',
    "amount": lambda i: f"{i * 0.37:.4f}",
    "ok": lambda i: "true" if i % 3 else "false",
    "ts": lambda i: f'"2024-03-01 10:{i % 60:02d}:00.{i % 1000:03d}"',
    "at": lambda i: f'"2024-03-01T10:{i % 60:02d}:00Z"',
    "day": lambda i: f'"2024-03-{i % 28 + 1:02d}"',
    "hour": lambda i: f'"{i % 24:02d}:00:01.5"',
    "raw": lambda i: '"aGk="',
    "price": lambda i: f"{i}.25",
    "r": lambda i: f'{{"x": {i}, "y": "{"é" * (i % 3)}", "z": {{"w": "t{i}"}}}}',
    "list": lambda i: "null",
    "other": lambda i: str(i * 3),
    "note": lambda i: f'"note, {i}: {{}}"',
}
ODD_VALUES = [
    *("null", "true", "false", '""', '" "', '"x"', '"12"', '"-1.5"', '" 12 "', '"1_0"', '"0x1F"', '"true"', '"TRUE"', '"null"'),
    *("0", "-0", "7", "-7", "1.0", "1.5", "-1.50", "1e3", "1E+2", "1e-30", "1e400", "-1e999999999", "0.1e1", "100", "128", "255"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "12345678901234567890123", "0.30000000000000004"),
    *("1234567890123456", "12345678901234567", "99999999", "100000000", "123456789012345678901234567890.5", "3.4e39"),
    *("01", "-01", "00", "+1", ".5", "5.", "-", "-.5", "1.e3", "1e", "1e+", "0x1F", "1_0", "NaN", "nan", "Infinity", "-Infinity", "inf"),
    *("nul", "nulL", "nullx", "tru", "True", "truex", "falsy", "fals", "none", "undefined", "١"),
    *('"\\n"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\q"', '"\\""', '"a\\\\"', '"\\u0000"', '"tab\there"', '"\x00"', '"\x7f"'),
    *('"2024-03-01 10:00:00.123456"', '"2024-03-01T10:00:00+02:00"', '"2024-02-30"', '"10:00"', '"24:00:00"', "1709287200000"),
    *('"aGk"', '"€"', '"unclosed', 'x"', '"a" "b"', '"a" , "k"', '"a","k":"b"', "1 2", "1,", ",", "", " ", " 5 ", "\t5", '"a" '),
    *("[]", "[1,2]", "[1,null,2.5]", '["a"]', "{}", '{"x": 1}', '{"x": 1, "x": 2}', '{"x": "y"}', '{"y": 5, "z": null}', "[[[[]]]]"),
    *('{"x": 1, "y": "a", "z": {"w": "b"}}', '{"x": 1, "y": "a", "z": 5}', "{", "}", "]", "/*c*/ 1", "1 //c", "'x'"),
]  # fmt: skip
ODD_LINES = [
    *("null", "[]", "1", '"x"', "{}", "{ }", '{"id":1}{"id":2}', '{"id": 1} x', "{'id':1}", "{id:1}", '{"id":1,}', '{,"id":1}'),
    *('{"id"}', '{"id" 1}', '{"id": 1 "user": "x"}', '{"id":: 1}', '{"id": 1', '"id": 1}', "}{", "{{}}", "x", '\ufeff{"id": 1}'),
    *('{"ID": 1, "Id": 2}', '{"id" : 1}', '{"i\\u0064": 1}', '{"": 1}', '{"id": {"id": 1}}', '{"r": {"id": 1}, "id": 3}', '"":{}'),
    "[" * 1500 + "]" * 1500,
    '{"id": 1, "deep": ' + '{"a":' * 1200 + "1" + "}" * 1200 + "}",
    '{"id": 1, "deep": ' + '{"a":' * 300 + "1" + "}" * 300 + "}",
]  # fmt: skip


def line(i: int, **changed: str) -> bytes:
    return (
        "{" + ", ".join(f'"{n}": {changed.get(n) or v(i)}' for n, v in FIELDS.items() if changed.get(n) != "-") + "}"
    ).encode()


LINES = [line(i) for i in range(30)]


def check(lines: list[bytes] | RecordChunk, schema: Schema = SCHEMA, **options: str) -> DecodedRecords:
    """Decode records together, and compare with each of them decoded alone."""
    chunk = lines_chunk(lines) if isinstance(lines, list) else lines
    found = decoder("json", schema, **options).decode(chunk)
    found.columns.validate(full=True)
    alone = [decoder("json", schema, **options).decode(lines_chunk([chunk.record(i)])) for i in range(len(chunk))]
    assert found.records.tolist() == [i for i, one in enumerate(alone) if one.columns.num_rows]
    assert [(b.index, b.reason) for b in found.bad] == [
        (i, one.bad[0].reason) for i, one in enumerate(alone) if one.bad
    ]
    for i, name in enumerate(schema.names):
        wanted = pa.chunked_array([one.columns.column(i) for one in alone], schema.arrow.field(i).type)
        assert shown(found.columns.column(i)) == shown(wanted), name
    return found


def shown(column: pa.Array | pa.ChunkedArray) -> str:
    """The values as text; whether a zero has a sign depends on which parser reads `-0`."""
    return re.sub(r"-0\.0(?![0-9e])", "0.0", repr(column.to_pylist()))


EVERYDAY = ("id", "user", "ts", "price")


@pytest.mark.parametrize(
    "field", [f if f in EVERYDAY else pytest.param(f, marks=pytest.mark.exhaustive) for f in FIELDS]
)
def test_odd_values_between_regular_ones(field: str) -> None:
    odd = [line(1000 + i, **{field: value}) for i, value in enumerate(ODD_VALUES) if "\n" not in value]
    check([*LINES, *odd])


def test_odd_records_between_regular_ones() -> None:
    odd = [text.encode() for text in ODD_LINES]
    random.Random(1).shuffle(odd)
    assert len(check([*LINES, *odd, *LINES]).records) > 2 * len(LINES)
    check([*LINES, *odd], json__fail_on_missing_field="true")
    check([*LINES, *odd], Schema.of(id=BIGINT))


@pytest.mark.parametrize("field", ["user", "note", "ts", "price", "raw", "day"])
def test_bytes_that_are_no_text_make_bad_records(field: str) -> None:
    """They were an error of the command in columns that are parsed from text."""
    odd = [
        line(7, **{field: '"?"'}).replace(b'"?"', b'"' + code + b'"') for code in (b"\xff", b"\xc3", b"\xed\xa0\x80")
    ]
    found = check([*LINES, *odd])
    assert [b.index for b in found.bad] == [30, 31, 32]
    assert all("not UTF-8" in b.reason for b in found.bad)


def test_line_ends_blanks_and_messages() -> None:
    for text in (b"\r\n".join(LINES), b"\n\n \n".join(LINES), b" \n".join(LINES), b"\n".join(LINES) + b"\r"):
        check(LineFramer().frame(text, True)[0])
    messages = pa.array([*LINES, b"", b" ", b'{"id":\n5}', b"\n", *LINES, b""])
    check(messages_chunk(messages))
    check(messages_chunk(messages.slice(3, 30)))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_messages_become_lines(kind: pa.DataType) -> None:
    dice = random.Random(3)
    for count in (0, 1, 2, 50):
        records = [bytes(dice.choices(b"ab {}", k=dice.randint(0, 6))) for _ in range(count)]
        chunk = messages_chunk(pa.array([b"before", *records, b"behind"], kind).slice(1, count))
        keep = np.array([dice.random() < 0.5 for _ in records], np.bool_)
        for found, wanted in (
            (chunk.as_lines(), records),
            (lines_chunk(records).as_lines(), records),
            (chunk.select(keep), [r for r, kept in zip(records, keep, strict=True) if kept]),
        ):
            assert [found.record(i) for i in range(len(found))] == wanted
            assert found.separated
    for end in (b"\n", b"\r"):
        assert not messages_chunk(pa.array([b"a", b"b" + end, b""], kind)).as_lines().separated
