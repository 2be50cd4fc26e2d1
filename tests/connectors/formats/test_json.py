"""JSON: exact values, the same whatever way a block takes, and what is wrong with bad records."""

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.format import lines_chunk, messages_chunk
from flowrun.connectors.formats.json_decoder import _has_tiny_number
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    DataType,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
)
from tests.examples import examples

from .formats import decoder, encoder, rows

WIDE = Schema.of(
    i=BIGINT,
    s=STRING,
    f=DOUBLE,
    b=BOOLEAN,
    d=decimal(20, 4),
    ts=timestamp(3),
    a=array(BIGINT),
    r=row(("x", INT), ("y", array(STRING))),
)
WITH_MAP = Schema((*WIDE.fields, *Schema.of(m=map_of(STRING, BIGINT)).fields))


def one(schema: Schema, *lines: str | bytes, **options: Any) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    records = [line.encode() if isinstance(line, str) else line for line in lines]
    decoded = decoder("json", schema, **options).decode(lines_chunk(records))
    return rows(decoded), [(b.index, b.reason) for b in decoded.bad]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BIGINT, "9223372036854775807", 2**63 - 1),
        (BIGINT, '"12"', 12),
        (BIGINT, "1.0", 1),
        (BIGINT, "1e3", 1000),
        (DOUBLE, '"1.5"', 1.5),
        (DOUBLE, '"NaN"', math.nan),
        (DOUBLE, "123456789012345678901234567890", 1.2345678901234568e29),
        (BOOLEAN, '"true"', True),
        (STRING, "1.10", "1.10"),
        (STRING, "12345678901234567890123", "12345678901234567890123"),
        (STRING, "true", "true"),
        (STRING, '{"a": [1, 2.50, "x", null]}', '{"a":[1,2.50,"x",null]}'),
        (STRING, '"\\ud83d\\ude00\\n"', "😀\n"),
        (STRING, '"a\tb\x00c\x1f"', "a\tb\x00c\x1f"),
        (row(("x", STRING)), '{"x": "a\tb"}', {"x": "a\tb"}),
        (decimal(10, 2), "10.13", Decimal("10.13")),
        (decimal(10, 2), '"10.13"', Decimal("10.13")),
        (decimal(10, 2), "0.30000000000000004", Decimal("0.30")),
        (decimal(38, 20), "0.10000000000000000001", Decimal("0.10000000000000000001")),
        (decimal(38, 0), "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
        (decimal(4, 2), "1e-999999999", Decimal("0.00")),
        (decimal(38, 30), "1e-30", Decimal("1e-30")),
        (decimal(38, 30), '"1E-30"', Decimal("1e-30")),
        (array(STRING), '["a", 1.50, null]', ["a", "1.50", None]),
        (map_of(BIGINT, decimal(4, 1)), '{"1": 2.5, "2": null}', [(1, Decimal("2.5")), (2, None)]),
        (row(("x", BIGINT)), '{"y": 1}', {"x": None}),
        (row(("x", timestamp(3))), '{"x": null}', {"x": None}),
    ],
)
def test_values_and_coercions(kind: DataType, text: str, value: Any) -> None:
    good, bad = one(Schema.of(v=kind), f'{{"v": {text}}}', '{"v": null}', "{}")
    assert bad == []
    assert [v is None for (v,) in good] == [False, True, True]
    assert good[0][0] == value or repr(good[0][0]) == repr(value)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (BIGINT, "1.5", "column 'v': 1.5 is no BIGINT"),
        (BIGINT, "9223372036854775808", "is no BIGINT"),
        (BIGINT, "1e999999999", "is no BIGINT"),
        (BIGINT, "true", "column 'v': true is no BIGINT"),
        (BIGINT, "[1]", "column 'v': [1] is no BIGINT"),
        (DOUBLE, '"x"', "column 'v': \"x\" is no DOUBLE"),
        (BOOLEAN, "1", "column 'v': 1 is no BOOLEAN"),
        (decimal(4, 2), "100", "column 'v': '100' is no DECIMAL(4, 2)"),
        (decimal(4, 2), "1e999999999", "is no DECIMAL(4, 2)"),
        (STRING, '"\\ud83d"', "half of a surrogate pair stands alone"),
        (timestamp(3), '"\\ud83d"', "half of a surrogate pair stands alone"),
        (decimal(4, 2), "true", "column 'v': true is no DECIMAL(4, 2)"),
        (timestamp(3), '"soon"', "column 'v': 'soon' is no TIMESTAMP(3)"),
        (timestamp(3), "17", "column 'v': 17 is no TIMESTAMP(3)"),
        (time(0), '""', "column 'v': '' is no TIME(0)"),
        (time(0), '"12"', "column 'v': '12' is no TIME(0)"),
        (array(BIGINT), '[1, "x"]', "column 'v': element \"x\" is no BIGINT"),
        (array(BIGINT), "{}", "column 'v': {} is no ARRAY<BIGINT>"),
        (map_of(BIGINT, BIGINT), '{"x": 1}', "column 'v': key \"x\" is no BIGINT"),
        (map_of(STRING, BIGINT), '{"x": "y"}', "column 'v': value \"y\" is no BIGINT"),
        (row(("x", array(BIGINT))), '{"x": ["y"]}', "column 'v': field 'x': element \"y\" is no BIGINT"),
    ],
)
def test_values_that_do_not_fit(kind: DataType, text: str, reason: str) -> None:
    good, bad = one(Schema.of(v=kind), "{}", f'{{"v": {text}}}', "{}")
    assert good == [(None,), (None,)]
    assert len(bad) == 1
    assert bad[0][0] == 1
    assert reason in bad[0][1]
    lenient, left_out = one(Schema.of(v=kind), f'{{"v": {text}}}', json__ignore_parse_errors="true")
    assert len(lenient) + len(left_out) == 1
    assert bool(left_out) == reason.startswith("half")


@pytest.mark.parametrize("schema", [Schema.of(i=BIGINT), WIDE, WITH_MAP, Schema(())])
def test_lines_that_are_no_object(schema: Schema) -> None:
    broken = [
        "null",
        "[]",
        "1",
        '"x"',
        '{"i":1}{"i":2}',
        '{"i":1',
        "{'i':1}",
        '{"i":01}',
        '{"i":1} null',
        '{"i":"',
        b'{"s":"\xff"}',
        "}{",
    ]
    good, bad = one(schema, *broken, '{"i":5}', "", "  ", " {} \r")
    assert len(good) == 2
    assert [i for i, _ in bad] == list(range(len(broken)))
    assert "expected a JSON object, got null" in bad[0][1]
    assert "not JSON: Extra data at character 8" in bad[4][1]
    assert "not UTF-8 text" in bad[10][1]


def test_the_last_of_two_equal_fields_counts() -> None:
    assert one(Schema.of(i=BIGINT), '{"i":1,"i":2}')[0] == [(2,)]


def test_missing_fields_fail_if_asked() -> None:
    good, bad = one(Schema.of(i=BIGINT), '{"i":null}', "{}", '{"i":1}', json__fail_on_missing_field="true")
    assert good == [(None,), (1,)]
    assert bad == [(1, "column 'i': the field is missing")]


def test_no_columns_still_count_rows() -> None:
    decoded = decoder("json", Schema(())).decode(lines_chunk([b'{"i":1}', b"", b"{}"]))
    assert decoded.columns.num_rows == 2


def json_values(kind: DataType) -> st.SearchStrategy[Any]:
    """JSON values that fit a type, and often those that do not."""
    match str(kind.root.value):
        case "BIGINT" | "INT":
            fitting: st.SearchStrategy[Any] = st.integers(-(2**31), 2**31 - 1)
        case "STRING" | "VARCHAR":
            fitting = st.text(max_size=6)
        case "DOUBLE":
            fitting = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000)
        case "BOOLEAN":
            fitting = st.booleans()
        case "DECIMAL":
            fitting = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6).map(lambda f: round(f, 3))
        case "TIMESTAMP":
            fitting = st.datetimes().map(lambda d: d.isoformat(" ", "milliseconds"))
        case "ARRAY":
            fitting = st.lists(json_values(kind.children[0]), max_size=3)
        case "MAP":
            fitting = st.dictionaries(st.text(max_size=3), json_values(kind.children[1]), max_size=3)
        case _:
            fitting = st.fixed_dictionaries(
                {}, optional={n: json_values(c) for n, c in zip(kind.names, kind.children, strict=True)}
            )
    odd = st.sampled_from(["x", "7", 1.5, True, [1], {"x": 1}, 2**70])
    return st.none() | fitting | fitting | fitting | fitting | odd


def documents(schema: Schema) -> st.SearchStrategy[Any]:
    fields = {f.name: json_values(f.type) for f in schema}
    return st.fixed_dictionaries({}, optional={**fields, "extra": st.integers() | st.lists(st.text(max_size=2))})


def expected(value: Any, kind: DataType) -> Any:
    """What a JSON value is in a column, value by value; ValueError if it is none. An oracle independent of columns."""
    if value is None:
        return None
    root = str(kind.root.value)
    match root:
        case "ARRAY" if isinstance(value, list):
            return [expected(v, kind.children[0]) for v in value]
        case "MAP" if isinstance(value, dict):
            return [(k, expected(v, kind.children[1])) for k, v in value.items()]
        case "ROW" if isinstance(value, dict):
            return {n: expected(value.get(n), c) for n, c in zip(kind.names, kind.children, strict=True)}
        case "BIGINT" | "INT" if isinstance(value, int | float | str) and not isinstance(value, bool):
            number = Decimal(value) if not isinstance(value, float) else Decimal(repr(value))
            bits = 63 if root == "BIGINT" else 31
            if number != number.to_integral_value() or not -(2**bits) <= number < 2**bits:
                raise ValueError(value)
            return int(number)
        case "DOUBLE" if isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)
        case "BOOLEAN" if isinstance(value, bool):
            return value
        case "STRING" | "VARCHAR":
            if isinstance(value, str):
                return value
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        case "DECIMAL" if isinstance(value, int | float | str) and not isinstance(value, bool):
            number = Decimal(repr(value) if not isinstance(value, str) else value).quantize(
                Decimal("0.0001"), "ROUND_HALF_UP"
            )
            if abs(number) >= 10**16:
                raise ValueError(value)
            return number
        case "TIMESTAMP" if isinstance(value, str):
            return dt.datetime.fromisoformat(value)
        case _:
            raise ValueError(value)


@examples(80)
@given(st.data())
def test_random_documents_against_json_loads(data: st.DataObject) -> None:
    schema = data.draw(st.sampled_from([WIDE, WITH_MAP, WIDE.select(["i", "s"]), WIDE.select(["r", "a"])]))
    written = data.draw(st.lists(documents(schema), max_size=8))
    lines = [json.dumps(d, ensure_ascii=data.draw(st.booleans())).encode() for d in written]
    wanted: list[tuple[Any, ...]] = []
    wrong: list[int] = []
    for i, line in enumerate(lines):
        document = json.loads(line)
        try:
            wanted.append(tuple(expected(document.get(f.name), f.type) for f in schema))
        except (ValueError, ArithmeticError):
            wrong.append(i)
    decoded = decoder("json", schema).decode(lines_chunk(lines))
    assert rows(decoded) == wanted
    assert [b.index for b in decoded.bad] == wrong


@examples(40)
@given(st.lists(documents(WIDE), max_size=30), st.integers(1, 30))
def test_blocks_and_messages_decode_alike(written: list[Any], block: int) -> None:
    lines = [json.dumps(d).encode() for d in written]
    whole = decoder("json", WIDE).decode(lines_chunk(lines))
    pieces = decoder("json", WIDE)  # keeps what it learnt from block to block
    parts = [pieces.decode(lines_chunk(lines[i : i + block])) for i in range(0, len(lines), block)]
    assert [r for p in parts for r in rows(p)] == rows(whole)
    assert [b.reason for p in parts for b in p.bad] == [b.reason for b in whole.bad]
    messages = decoder("json", WIDE).decode(messages_chunk(pa.array(lines, pa.binary())))
    assert rows(messages) == rows(whole)
    np.testing.assert_array_equal(messages.records, whole.records)


def test_messages_may_hold_line_ends() -> None:
    payloads = pa.array([b'{"i":\n1}', b'{"i":2}', b""], pa.binary())
    decoded = decoder("json", Schema.of(i=BIGINT)).decode(messages_chunk(payloads))
    assert rows(decoded) == [(1,), (2,)]
    assert rows(decoder("json", Schema.of(i=BIGINT)).decode(messages_chunk(payloads.slice(1)))) == [(2,)]


def test_many_rows_with_a_few_odd_ones() -> None:
    lines = [b'{"i":%d,"s":"x"}' % i for i in range(5000)]
    for odd in (0, 17, 2500, 4999):
        lines[odd] = b'{"i":"%d","s":1.0}' % odd
    lines[3000] = b"oops"
    decoded = decoder("json", Schema.of(i=BIGINT, s=STRING)).decode(lines_chunk(lines))
    assert [b.index for b in decoded.bad] == [3000]
    assert decoded.columns.column(0).to_pylist() == [i for i in range(5000) if i != 3000]
    assert [i for i, s in enumerate(decoded.columns.column(1).to_pylist()) if s != "x"] == [0, 17, 2500, 4998]


def test_timestamps_finer_than_their_type_stay_right_from_block_to_block() -> None:
    fine = decoder("json", Schema.of(ts=timestamp(3), d=decimal(6, 2)))
    first = fine.decode(lines_chunk([b'{"ts":"2024-03-01T10:00:00.123456Z","d":1.005}'] * 100))
    second = fine.decode(lines_chunk([b'{"ts":"2024-03-01 10:00:00.123","d":"1.01"}'] * 100))
    assert first.columns.equals(second.columns)


@examples(60)
@given(st.data())
def test_encoded_rows_are_json_with_the_same_values(data: st.DataObject) -> None:
    value = st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "s": st.none() | st.text(),
            "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "b": st.none() | st.booleans(),
            "a": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
            "r": st.none()
            | st.fixed_dictionaries(
                {
                    "x": st.none() | st.integers(-5, 5),
                    "y": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
                }
            ),
            "m": st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.integers(-5, 5), max_size=3),
        }
    )
    schema = WITH_MAP.select(["i", "s", "f", "b", "a", "r", "m"])
    written = data.draw(st.lists(value, max_size=6))
    cut = data.draw(st.integers(0, len(written)))
    batch = pa.RecordBatch.from_pylist(
        [{**w, "m": None if w["m"] is None else list(w["m"].items())} for w in written], schema=schema.arrow
    ).slice(cut)
    lines = bytes(encoder("json", schema).encode(batch)).split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line) for line in lines] == written[cut:]
    messages = encoder("json", schema).encode_messages(batch)
    assert [json.loads(m) for m in messages.to_pylist()] == written[cut:]
    short = [
        json.loads(m)
        for m in encoder("json", schema, json__encode__ignore_null_fields="true").encode_messages(batch).to_pylist()
    ]
    assert short == [_without_nulls(w) for w in written[cut:]]


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    row_value = value["r"]
    trimmed = {**value, "r": None if row_value is None else {k: v for k, v in row_value.items() if v is not None}}
    return {k: v for k, v in trimmed.items() if v is not None}


def test_tiny_numbers_are_told_from_other_text() -> None:
    """pyarrow would crash on the former as a decimal; the latter must not leave the fast path."""

    def tiny(text: str) -> bool:
        return _has_tiny_number(pa.py_buffer(text.encode()))

    for number in ("1e-20", "-1.5E-999999999", "0.1e-0021", '"7e-30"', "0." + "0" * 200 + "1e-99"):
        assert tiny('{"v":' + number + "}")
        assert tiny('{"v":[1,' + number + ' ,2],"w":1}')
    for other in ("1e-19", "1e20", '"12345675e-42ab-4bcd"', '"e-22"', '"x1e-22"', '"2e-22-2024"'):
        assert not tiny('{"v":' + other + "}")


@pytest.mark.parametrize("schema", [Schema.of(a=BIGINT), Schema.of(a=BIGINT, x=STRING)], ids=["ignored", "read"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"k":', "}")], ids=["arrays", "objects"])
def test_records_are_read_down_to_1000_levels_and_bad_below(schema: Schema, opening: str, closing: str) -> None:
    for levels in (100, 300, 600, 998, 999, 1000, 1500, 200_000):
        nested = opening * levels + "1.50" + closing * levels
        found, bad = one(schema, '{"a": 1}', f'{{"a": 2, "x": {nested}}}', '{"a": "3"}')
        if levels < 1000:
            assert [row[0] for row in found] == [1, 2, 3], levels
            assert not bad
            assert len(schema.fields) == 1 or found[1][1] == nested
        else:
            assert [row[0] for row in found] == [1, 3], levels
            assert bad == [(1, "nested more than 1000 levels deep")]


def test_brackets_in_strings_nest_nothing() -> None:
    text = "[{" * 3000 + '\\" ['
    assert one(Schema.of(x=STRING), f'{{"x": "{text}"}}') == ([("[{" * 3000 + '" [',)], [])
