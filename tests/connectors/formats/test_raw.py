"""The raw format: text in any charset, bytes, and numbers of a fixed width, as Apache Flink writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.format import messages_chunk
from flowrun.connectors.formats.registry import format_options
from flowrun.core import types as t
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import DataError, OptionError
from tests.connectors.filesystem import tables as files
from tests.connectors.formats.formats import decoder, encoder
from tests.connectors.kafka import tables as topics


def written(kind: DataType, values: list[Any], **options: str) -> list[bytes | None]:
    schema = Schema.of(v=kind)
    columns = pa.record_batch([pa.array(values, kind.arrow)], schema=schema.arrow)
    found: list[bytes | None] = encoder("raw", schema, **options).encode_messages(columns).to_pylist()
    return found


def read(kind: DataType, records: list[bytes], **options: str) -> tuple[list[Any], list[tuple[int, str]]]:
    decoded = decoder("raw", Schema.of(v=kind), **options).decode(messages_chunk(pa.array(records, pa.binary())))
    return decoded.columns.column(0).to_pylist(), [(b.index, b.reason) for b in decoded.bad]


@pytest.mark.parametrize(
    ("kind", "value", "record"),
    [
        (t.BOOLEAN, True, b"\x01"),
        (t.TINYINT, -2, b"\xfe"),
        (t.SMALLINT, 258, b"\x01\x02"),
        (t.INT, -2, b"\xff\xff\xff\xfe"),
        (t.BIGINT, 10, b"\0\0\0\0\0\0\0\n"),
        (t.FLOAT, 1.5, b"\x3f\xc0\0\0"),
        (t.DOUBLE, -2.0, b"\xc0\0\0\0\0\0\0\0"),
    ],
    ids=str,
)
def test_numbers_have_a_fixed_width(kind: DataType, value: Any, record: bytes) -> None:
    assert written(kind, [value, None, value]) == [record, None, record]
    assert read(kind, [record, record]) == ([value, value], [])
    little = {"raw.endianness": "little-endian"}
    assert written(kind, [value], **little) == [record[::-1]]
    assert read(kind, [record[::-1]], **little) == ([value], [])
    assert read(kind, [record, b"123456789", b"", record]) == (
        [value, value],
        [(1, f"{kind} takes {len(record)} bytes, got 9"), (2, f"{kind} takes {len(record)} bytes, got 0")],
    )


def test_text_has_the_charset_that_is_named() -> None:
    latin = {"raw.charset": "ISO-8859-1"}
    assert written(t.STRING, ["ä", None, ""], **latin) == [b"\xe4", None, b""]
    assert read(t.STRING, [b"\xe4", b"a"], **latin) == (["ä", "a"], [])
    with pytest.raises(DataError, match="ISO8859-1 has no character '☂'") as raised:
        written(t.STRING, ["a", "☂"], **latin)
    assert raised.value.row == 1
    wide = {"raw.charset": "UTF-16BE"}
    assert read(t.STRING, [b"\0a", b"\0"], **wide) == (["a"], [(1, "not UTF-16-BE text: truncated data at byte 0")])
    assert written(t.STRING, ["a"], **wide) == [b"\0a"]


@pytest.mark.parametrize(
    ("charset", "message"),
    [("UTF8x", "no charset 'UTF8x'"), ("base64", "no charset"), ("UTF-16", "leaves the order of bytes open")],
)
def test_charsets_that_cannot_be_used(charset: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        encoder("raw", Schema.of(v=t.STRING), **{"raw.charset": charset})


def test_options_are_those_of_flink() -> None:
    assert [(o.name, o.default) for o in format_options("raw").options] == [
        ("charset", "UTF-8"),
        ("endianness", "big-endian"),
    ]


@pytest.mark.parametrize("role", ["source", "sink"])
def test_lines_hold_text_and_bytes_only(role: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    make = files.source if role == "source" else files.sink
    with pytest.raises(OptionError, match=r"lines hold STRING or BYTES only, got \(v BIGINT\)"):
        make(tmp_path / "in", "raw", Schema.of(v=t.BIGINT))
    with pytest.raises(OptionError, match="lines cannot be found in charset 'UTF-16BE'"):
        make(tmp_path / "in", "raw", Schema.of(v=t.STRING), {"raw.charset": "UTF-16BE"})


def test_a_table_of_several_columns_has_no_raw_values() -> None:
    with pytest.raises(OptionError, match="exactly one column"):
        topics.source(Schema.of(a=t.STRING, b=t.STRING), {"scan.startup.mode": "earliest-offset"}, format="raw")
