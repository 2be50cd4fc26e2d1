"""Values of files as declared types, and filters that are evaluated by the file's database first."""

from __future__ import annotations

import datetime as dt
import operator
from decimal import Decimal
from typing import Any

import pytest

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    array,
    char,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import ConnectorError, DataError
from tests.connectors.jdbc.files import FileDatabase
from tests.connectors.jdbc.tables import options_of, read, source

UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
INSTANT = dt.datetime(2020, 5, 17, 10, 20, 30, 123456, tzinfo=dt.UTC)
PLAIN = INSTANT.replace(tzinfo=None)
Value = tuple[str, str, DataType, Any]
OF_DUCKDB: list[Value] = [
    ("smallint", "-32768", SMALLINT, -32768),
    ("bigint", "7", TINYINT, 7),
    ("ubigint", "18446744073709551615", decimal(20, 0), Decimal(2**64 - 1)),
    ("hugeint", "-9223372036854775808", BIGINT, -(2**63)),
    ("hugeint", "12", decimal(5, 2), Decimal("12.00")),
    ("int", "12", DOUBLE, 12.0),
    ("int", "12", STRING, "12"),
    ("decimal(10,0)", "99", BIGINT, 99),
    ("float", "1.5", FLOAT, 1.5),
    ("float", "1.5", DOUBLE, 1.5),
    ("double", "'Infinity'", DOUBLE, float("inf")),
    ("decimal(10,2)", "-0.01", decimal(38, 18), Decimal("-0.010000000000000000")),
    ("decimal(12,3)", "1.005", decimal(4, 2), Decimal("1.01")),
    ("decimal(12,3)", "-1.005", decimal(4, 2), Decimal("-1.01")),
    ("boolean", "true", BOOLEAN, True),
    ("varchar", "'grüße 🎉'", STRING, "grüße 🎉"),
    ("varchar", "'a' || chr(0) || 'b'", STRING, "a\0b"),
    ("varchar", "'ab'", char(4), "ab"),
    ("blob", r"'\x00\xff'", BYTES, b"\x00\xff"),
    ("date", "'1969-12-31'", DATE, dt.date(1969, 12, 31)),
    ("time", "'12:34:56.789'", time(3), dt.time(12, 34, 56, 789000)),
    ("timestamp", "'2020-05-17 10:20:30.123456'", timestamp(6), PLAIN),
    ("timestamp", "'1969-12-31 23:59:59.9999'", timestamp(3), dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ("timestamp_s", "'2020-05-17 10:20:30'", timestamp(3), PLAIN.replace(microsecond=0)),
    ("timestamp_ns", "'2020-05-17 10:20:30.123456789'", timestamp(6), PLAIN),
    ("timestamptz", "'2020-05-17 12:20:30.123456+02'", timestamp_ltz(6), INSTANT),
    ("date", "'2020-05-17'", timestamp(3), dt.datetime(2020, 5, 17)),
    ("json", "'{\"a\": [1, null]}'", STRING, '{"a": [1, null]}'),
    ("uuid", f"'{UUID}'", STRING, UUID),
    ("enum('sad', 'ok')", "'sad'", STRING, "sad"),
    ("interval", "interval 1 day", STRING, "1 day"),
    ("int[]", "[1, NULL, 3]", array(INT), [1, None, 3]),
    ("int[2]", "[1, 2]", array(BIGINT), [1, 2]),
    ("varchar[][]", "[['a'], [], NULL]", array(array(STRING)), [["a"], [], None]),
    ("struct(a int, b varchar)", "{'a': 1, 'b': 'x'}", row(("b", STRING), ("a", INT)), {"b": "x", "a": 1}),
    ("map(varchar, int)", "map {'k': 1}", map_of(STRING, INT), [("k", 1)]),
    ("int[]", "[1, 2]", STRING, "[1, 2]"),
]
OF_SQLITE: list[Value] = [
    ("integer", "-9223372036854775807 - 1", BIGINT, -(2**63)),
    ("bigint", "7", TINYINT, 7),
    ("integer", "12", DOUBLE, 12.0),
    ("integer", "12", STRING, "12"),
    ("numeric", "12", decimal(5, 2), Decimal("12.00")),
    ("numeric", "1.005", decimal(4, 2), Decimal("1.01")),
    ("real", "-1.005", decimal(4, 2), Decimal("-1.01")),
    ("real", "0.1 + 0.2", decimal(18, 17), Decimal("0.30000000000000000")),
    ("numeric", "1e20", decimal(38, 0), Decimal(10**20)),
    ("text", "'12345678901234567890.123456789'", decimal(38, 9), Decimal("12345678901234567890.123456789")),
    ("boolean", "1", BOOLEAN, True),
    ("boolean", "false", BOOLEAN, False),
    ("real", "1.5", FLOAT, 1.5),
    ("", "9e999", DOUBLE, float("inf")),
    ("text", "'grüße 🎉'", STRING, "grüße 🎉"),
    ("text", "''", STRING, ""),
    ("text", "'a' || char(0) || 'b'", STRING, "a\0b"),
    ("varchar(2)", "'abc'", STRING, "abc"),
    ("blob", "x'00ff'", BYTES, b"\x00\xff"),
    ("blob", "x''", BYTES, b""),
    ("date", "'1969-12-31'", DATE, dt.date(1969, 12, 31)),
    ("text", "'12:34:56.789'", time(3), dt.time(12, 34, 56, 789000)),
    ("datetime", "'2020-05-17 10:20:30.123456'", timestamp(6), PLAIN),
    ("text", "'2020-05-17T10:20:30'", timestamp(3), PLAIN.replace(microsecond=0)),
    ("text", "'2020-05-17 12:20:30.123456+02:00'", timestamp_ltz(6), INSTANT),
    ("text", "datetime('2020-05-17 10:20:30')", timestamp_ltz(3), INSTANT.replace(microsecond=0)),
]


@pytest.mark.parametrize(("scheme", "values"), [("duckdb", OF_DUCKDB), ("sqlite", OF_SQLITE)])
def test_values_of_every_type_are_read_exactly(
    request: pytest.FixtureRequest, scheme: str, values: list[Value]
) -> None:
    file: FileDatabase = request.getfixturevalue(f"{scheme}_file")
    file.execute(f"CREATE TABLE t ({', '.join(f'c{i} {kind}' for i, (kind, *_) in enumerate(values))})")
    nulls = ", ".join("NULL" for _ in values)
    file.execute(f"INSERT INTO t VALUES ({nulls}), ({', '.join(value for _, value, *_ in values)}), ({nulls})")
    schema = Schema.from_pairs((f"c{i}", declared) for i, (_, _, declared, _) in enumerate(values))
    first, second, third = read(source(options_of(file, "t"), schema))
    for i, (kind, value, declared, expected) in enumerate(values):
        assert second[i] == expected, f"{kind} {value} as {declared}"
        assert type(second[i]) is type(expected), f"{kind} {value} as {declared}"
    assert {*first, *third} == {None}


@pytest.mark.parametrize(
    ("scheme", "kind", "value", "declared", "message"),
    [
        ("duckdb", "bigint", "2147483648", INT, "no INT"),
        ("duckdb", "decimal(10,2)", "1000", decimal(3, 0), "no DECIMAL"),
        ("duckdb", "timestamp", "'infinity'", timestamp(3), "'infinity'"),
        ("duckdb", "date", "'-infinity'", DATE, "'infinity'"),
        ("duckdb", "hugeint", "9223372036854775808", BIGINT, "refuses a value"),
        ("sqlite", "integer", "2147483648", INT, "no INT"),
        ("sqlite", "integer", "'seven'", BIGINT, "column 'c' of \"t\" holds a value that is no BIGINT"),
        ("sqlite", "integer", "1.5", BIGINT, "no BIGINT"),
        ("sqlite", "boolean", "2", BOOLEAN, "no BOOLEAN"),
        ("sqlite", "real", "'x'", DOUBLE, "no DOUBLE"),
        ("sqlite", "text", "x'ff'", STRING, "no STRING"),
        ("sqlite", "text", "CAST(x'ff' AS TEXT)", STRING, "not UTF-8"),
        ("sqlite", "blob", "'text'", BYTES, "no BYTES"),
        ("sqlite", "numeric", "'dear'", decimal(5, 2), "'dear' is no DECIMAL"),
        ("sqlite", "date", "'17.5.2020'", DATE, "'17.5.2020' is no DATE"),
        ("sqlite", "datetime", "1589710830", timestamp(3), "no TIMESTAMP"),
    ],
)
def test_values_that_do_not_fit_are_errors(
    request: pytest.FixtureRequest, scheme: str, kind: str, value: str, declared: DataType, message: str
) -> None:
    file: FileDatabase = request.getfixturevalue(f"{scheme}_file")
    file.execute(f"CREATE TABLE t (c {kind}); INSERT INTO t VALUES (NULL), ({value})")
    with pytest.raises((DataError, ConnectorError), match=message) as raised:
        read(source(options_of(file, "t"), Schema.of(c=declared)))
    assert not getattr(raised.value, "retryable", False)


COLUMNS: dict[str, tuple[DataType, dict[str, str]]] = {
    "i": (INT, {"duckdb": "int", "sqlite": "integer"}),
    "n": (decimal(10, 1), {"duckdb": "decimal(12,1)", "sqlite": "numeric"}),
    "f": (DOUBLE, {"duckdb": "double", "sqlite": "real"}),
    "s": (STRING, {"duckdb": "varchar collate nocase", "sqlite": "text collate nocase"}),
    "u": (STRING, {"duckdb": "uuid", "sqlite": "text"}),
    "b": (BOOLEAN, {"duckdb": "boolean", "sqlite": "boolean"}),
    "d": (DATE, {"duckdb": "date", "sqlite": "date"}),
    "t": (timestamp(3), {"duckdb": "timestamp", "sqlite": "text"}),
    "e": (timestamp(3), {"duckdb": "timestamp_s", "sqlite": "text"}),
    "z": (timestamp_ltz(3), {"duckdb": "timestamptz", "sqlite": "text"}),
    "y": (BYTES, {"duckdb": "blob", "sqlite": "blob"}),
}
ROWS = [
    "3, 1.5, 1.5, 'a', '{u}', true, '2020-05-17', '2020-05-17 10:20:30.1239', '2020-05-17 10:20:30', '2020-05-17 10:20:30.123999+00', {y}",
    "-5, 1.4, -0.0, 'B', NULL, false, '1970-01-01', '2020-05-17 10:20:30.123', '1970-01-01 00:00:00', '2020-05-17 10:20:30.122999+00', {y}",
    "0, 2.0, 9e999, 'Ä', '{u}', NULL, '1969-12-31', '1970-01-01 00:00:00', '2030-01-01 00:00:00', '1970-01-01 00:00:00+00', {y}",
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "7, -3, 0.1, 'ab', '{v}', true, '2021-01-01', '2020-05-17 10:20:30.124', '2020-05-17 10:20:31', '2020-05-17 10:20:30.124+00', {y}",
    "7, 0, 1e-300, 'z''z', NULL, false, '2021-01-01', '2022-01-01 00:00:00', '2022-01-01 00:00:00', '2022-01-01 00:00:00+00', {y}",
]
BLOBS = ["01", "", "00ff", "", "02", "0100"]
MS = 1_589_710_830_123
FILTERS: dict[str, list[Any]] = {
    "i": [-5, 0, 3, 2**31 - 1],
    "n": ["1.5", "0.0", "2", "123456789.1"],
    "f": [1.5, 0.0, -1.0, float("inf")],
    "s": ["a", "A", "B", "b", "Ä", "", "z'z", "ab"],
    "u": [UUID, UUID.upper(), "no uuid"],
    "b": [True, False],
    "d": [18399, 0, -800000],
    "t": [MS, MS - 1, MS + 1, 0, 10**18],
    "e": [MS, MS - 123, MS + 877, 0],
    "z": [MS, MS - 1, MS + 1, 0],
    "y": [b"", b"\x01", b"\x00\xff"],
}
TELL = {
    Comparison.EQ: operator.eq,
    Comparison.NE: operator.ne,
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GE: operator.ge,
}


def keeps(value: Any, pushed: PushedFilter) -> bool:
    """The filter as the engine evaluates it on a value that was read."""
    if pushed.comparison is Comparison.IS_NULL or value is None:
        return value is None and pushed.comparison is Comparison.IS_NULL
    if pushed.comparison is Comparison.IS_NOT_NULL:
        return True
    left, right = value, pushed.value
    if isinstance(value, dt.datetime):
        left = (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)
    elif isinstance(value, dt.date):
        left = (value - dt.date(1970, 1, 1)).days
    elif isinstance(value, Decimal):
        right = Decimal(str(right))
    elif isinstance(value, str):
        left, right = value.encode(), str(right).encode()
    return bool(TELL[pushed.comparison](left, right))


def test_pushed_filters_leave_out_no_row_that_the_filter_keeps(file: FileDatabase) -> None:
    """The database may send more rows, never fewer, and it does leave out some."""
    kinds = ", ".join(f"{name} {kind[file.scheme]}" for name, (_, kind) in COLUMNS.items())
    file.execute(f"CREATE TABLE t ({kinds})")
    for values, blob in zip(ROWS, BLOBS, strict=True):
        y = f"x'{blob}'" if file.scheme == "sqlite" else f"from_hex('{blob}')"
        file.execute(f"INSERT INTO t VALUES ({values.format(u=UUID, v=UUID.replace('a0', 'b0'), y=y)})")
    schema = Schema.from_pairs((name, declared) for name, (declared, _) in COLUMNS.items())
    everything = read(source(options_of(file, "t"), schema))
    assert len(everything) == len(ROWS)
    made = source(options_of(file, "t"), schema)
    relation = made.dialect.describe(made.access)
    asked = [PushedFilter(column, c, v) for column, constants in FILTERS.items() for v in constants for c in TELL]
    asked += [PushedFilter(column, c) for column in FILTERS for c in (Comparison.IS_NULL, Comparison.IS_NOT_NULL)]
    said = [
        (pushed, condition)
        for pushed in asked
        if (
            condition := made.dialect.condition(
                relation.column(pushed.column), schema.field(pushed.column).type, pushed
            )
        )
        is not None
    ]
    verdicts = ", ".join(f"CASE WHEN {condition} THEN 1 ELSE 0 END" for _, condition in said)
    left_out = 0
    for row_of_all, sent in zip(everything, file.execute(f"SELECT {verdicts} FROM t ORDER BY rowid"), strict=True):
        for (pushed, condition), is_sent in zip(said, sent, strict=True):
            assert is_sent or not keeps(row_of_all[schema.index(pushed.column)], pushed), (row_of_all, condition)
            left_out += not is_sent
    assert left_out > 200
    chosen = (PushedFilter("i", Comparison.GT, 0), PushedFilter("s", Comparison.EQ, "z'z"))
    assert [r[0] for r in read(source(options_of(file, "t"), schema, filters=chosen))] == [7]
