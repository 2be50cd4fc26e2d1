"""Edge values of every type, crossed: the rows on which Spark's expressions are held against flowrun's kernels."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL_DAY_TIME,
    INTERVAL_YEAR_MONTH,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.plan.expressions import ColumnRef

SIDE = 24
"""Values of a column that are crossed with those of another: the table has their square in rows."""

INF, NAN = float("inf"), float("nan")
MOMENTS = [
    None, dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(2024, 2, 29, 12, 30, 15, 500000),
    dt.datetime(1582, 10, 10, 1, 2, 3), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999000),
    dt.datetime(1900, 2, 28, 23, 0), dt.datetime(2023, 12, 31, 0, 0, 0, 1000), dt.datetime(2026, 1, 1), dt.datetime(2021, 1, 3, 4),
    dt.datetime(2000, 2, 29), dt.datetime(1883, 11, 18, 12, 3, 58), dt.datetime(2024, 12, 30, 7), dt.datetime(2024, 3, 31, 23, 59),
    dt.datetime(1752, 9, 3), dt.datetime(1999, 12, 31, 23, 59, 59), dt.datetime(2024, 8, 31, 6, 45),
]  # fmt: skip
FINE = [m if m is None or m.year in (1, 9999) else m + dt.timedelta(microseconds=i * 7) for i, m in enumerate(MOMENTS)]
DAYS = [None if m is None else m.date() for m in MOMENTS]
CLOCKS = [None, *(dt.time(h, m, s, f) for h, m, s, f in [
    (0, 0, 0, 0), (23, 59, 59, 999000), (12, 0, 0, 0), (1, 2, 3, 4000), (23, 0, 0, 0), (0, 0, 0, 1000), (9, 58, 30, 640000)])]  # fmt: skip
TEXTS = [
    None, "", " ", "a", "A", "abc", "abcabc", "  pad  ", "ÜbeR straße", "😀a☂", "a😀", "İ ŉ Σας", "x,y,,z", "1", "-12.5", "tab\there",
    "line\nbreak", "it's \"q\" \\b $1 %_", "0", "true", "é", "é", "long " * 60, "ﬀ ǅ",
]  # fmt: skip
NUMBER_TEXTS = [
    None, "", "0", "-0", "+5", " 7 ", "12.99", "-12.5", "1.", ".5", "1e3", "-1.5E-2", "NaN", "Infinity", "-Infinity", "inf", "0x1F", "1_0",
    "2147483648", "-129", "99999999999999999999", "1e400", "٣", "\u2003 8\n",
]  # fmt: skip
TIME_TEXTS = [
    None, "", "2024-02-29", "2023-02-29", "2024-2-9", " 2024-01-02 03:04:05 ", "2024-01-02T03:04:05.123456789", "2024-01-02 3:4",
    "2024-01-02 03:04:05.5", "2024-01-02 03:04:05Z", "2024-01-02 03:04:05+00:00", "2024-01-02 03:04:05+01:00",
    "0001-01-01 00:00:00", "9999-12-31 23:59:59.999",
    "12:34:56", "1:2:3.004", "25:00:00", "2024-13-01", "2024-01-02 24:00:00", "02024-01-02", "2024/01/02",
    "1582-10-10 00:00", "0000-01-01", "2024-01-02 03",
]  # fmt: skip
DAY_TEXTS = [
    "2024", "24-1-2", "2024-1", "2024-02-30", "2024-04-31 10:00:00", "2024-02-32", "2024-02-29 24:00:00.000", "2024-02-30 24:0:0",
    "2024-01-02 24:00:01", "2024-01-02 03:04:05.", "2024-1-2 3:4:5.123456789", "2024-01-02 03:04:05.1234567890", "2024-1-2 x",
    "2024-1-2\nx", "2024- 1", "2024\t-1-2", "2024-001-02", " 2024-1-2 x", "12024-01-01", "0-1-1", "2024-02-29 24:00:00.1", "00002024-1-2",
    "-2024-1-2", "2024-1-2-3",
]  # fmt: skip
CLOCK_TEXTS = [
    "7", " 10 ", "24", "010", "10:020:030", "10 : 20", "10:20:30.9996", "10:20:30.1235", "10:20:30.123456", "23:59:59.9999", "10:20:30.",
    "10:20:30.12345678901", "\t5\n", "10:20:30+01:00", "1:2:3:4", "10:20.5", "0:0:0", "10:", "10:20:60", "10:20:30 .5", "23:59:59.9994",
    "1:60", "10:20: ", "10:20:30.x",
]  # fmt: skip
ODD_NUMBER_TEXTS = [
    ".", "-.5", "+.", "-", "\t5\n", "5\r", "1.5f", "2D", "+NaN", "-NaN", "Infinityd", "5\xa0", " -7.9 ", "1.e2", "-Infinity ", "1e5d",
    ".5.", "+.9", " . ", "NaNf", "+Infinity", "5 5", "5\x00", "-0.9",
]  # fmt: skip
WORD_TEXTS = [
    None, "t", "TRUE", " Yes ", "1", "f", "False", "n", "0", "no", "y", "on", "", "2", "tru", "NO\n", " true", "false ", "\tt",
]  # fmt: skip
DOCUMENTS = [
    None, "", "{", "{}", "[]", "1", '"x"', "null", "true", '{"a": {"b": 1, "c d": "ü☂"}}', '{"a": [1, 2.50, {"x": null}]}', '{"a": null}',
    '{"a": 1e3, "b": 1.50}', '{"a": "x\\n\\u00fc"}', '{"a": true, "a": false}', "[1, 2, [3]]",
    ' {"a" : 12345678901234567890123}', "nul", '{"a":1}x',
    '["a", null]', '{"b": {"a": 7}}', '{"a": "1"}', '{"a": {}}', '{"a": []}',
]  # fmt: skip
NUMBERS = [None, 0, 1, -1, 2, 3, -3, 7, 10, 100, 127, -128, 5, 12, -12]

GRIDS: dict[str, tuple[DataType, Sequence[Any]]] = {
    "truth": (BOOLEAN, [None, True, False]),
    "tiny": (TINYINT, NUMBERS),
    "small": (SMALLINT, [*NUMBERS, 32767, -32768, 128]),
    "int": (INT, [*NUMBERS, 2**31 - 1, -(2**31), 70000, 1000, -1000]),
    "long": (BIGINT, [*NUMBERS, 2**63 - 1, -(2**63), 2**31, 10**15, 9007199254740993]),
    "float": (FLOAT, [None, 0.0, -0.0, 1.5, -1.5, 0.1, NAN, INF, -INF, 3.4e38, 1e-45, 16777216.0, 1e10, 0.001, 123456.789, 2.5,
        23170320.0, 2.0**87, 4.2290378e17, 2e23]),
    "double": (DOUBLE, [
        None, 0.0, -0.0, 1.5, -1.5, 0.1, NAN, INF, -INF, 1e300, 5e-324, 1e7, 9999999.999, 0.001, 0.00099, 2.5, -2.5, 1e-10, 123456789.125,
        9007199254740993.0, 0.5, 1.005, -0.4, 1e19]),
    "great": (DOUBLE, [2e23, -6.581120701287273e18, 2.9442846016306656e25, 2.0**89, -(2.0**122), 9007199254740992.0, 1e37,
        7.9e37, 1e16, 1.8e18]),
    "cents": (decimal(10, 2), [None, *map(Decimal, ["0", "0.01", "-0.01", "1.00", "-1.50", "2.50", "12345678.90",
    "-99999999.99", "99999999.99", "0.50", "3.00", "7.25", "-7.25", "100.00"])]),
    "whole": (decimal(5, 0), [None, *map(Decimal, ["0", "1", "-1", "7", "99999", "-99999", "10"])]),
    "exact": (decimal(38, 18), [None, *map(Decimal, [
        "0", "1", "-1", "0.000000000000000001", "99999999999999999999.999999999999999999", "-99999999999999999999.999999999999999999",
        "3.333333333333333333", "-0.5", "123456789.987654321000000001"])]),
    "wide": (decimal(38, 0), [None, *map(Decimal, ["0", "1", "-7", "9" * 38, "-" + "9" * 38, "1" + "0" * 30])]),
    "text": (STRING, TEXTS),
    "number_text": (STRING, NUMBER_TEXTS),
    "time_text": (STRING, TIME_TEXTS),
    "day_text": (STRING, DAY_TEXTS),
    "clock_text": (STRING, CLOCK_TEXTS),
    "odd_number_text": (STRING, ODD_NUMBER_TEXTS),
    "word_text": (STRING, WORD_TEXTS),
    "json": (STRING, DOCUMENTS),
    "pairs": (STRING, [
        None, "", "a=1,b=2", "a=1,b=2,c", "a,,", ",,", ",a=", "=x", "a=1,a=2,b=3,a=4", "a==1&b=2=3&", "😀=☂;k=", "a=1,,b=2,,", "x|y=1||"]),
    "url": (STRING, [
        None, "", "http://me@ex.org:80/p/q?k=v&q=1#r", "HTTPS://ex.org", "http:", "http://", "ftp://u:p@w@[::1]:21/?",
        "mailto:a@b.c?k=&k=2", "\u2003 file:///tmp/x\n#", "jar:file:/a!/b", "http://ex.org:8a/?a.b=1&a-b=2", "http://ex.org?#x?y", "http://ex.org/a?b?k=c#d#e",
        "httpſ://ex.org/", "gopher://x", "http//x", "http://ü.org:٣/☂?k=😀", "http://ex.org:80\n/x", "http://[::1]", "http://@", "x http://y"]),
    "codes64": (STRING, [
        None, "", "YQ==", "YWI=", "YWJj", "YR==", "YQ=", "YQ", "YQ==\n", " YQ==", "Y Q==", "====", "YQ==YQ==", "/w==", "8J+YgA==", "7aCA",
        "wIA=", "_-==", "Y", "4piC77+/", "AAAA", "YWJ=", "8J-Y", "QUJD" * 30]),
    "bytes": (BYTES, [None, b"", b"a", b"\x00\xff", b"\xc3\xbc", b"\xf0\x9f\x98", b"abc", b"YWJj", b"long" * 30]),
    "day": (DATE, DAYS),
    "clock": (time(0), [None if c is None else c.replace(microsecond=0) for c in CLOCKS]),
    "clock3": (time(3), CLOCKS),
    "clock6": (time(6), [None, dt.time(0, 0), dt.time(23, 59, 59, 999999), dt.time(1, 2, 3, 456789)]),
    "second": (timestamp(0), [None if m is None else m.replace(microsecond=0) for m in MOMENTS]),
    "moment": (timestamp(3), MOMENTS),
    "fine": (timestamp(6), FINE),
    "nano": (timestamp(9), [None if m is None or not 1700 < m.year < 2200 else m for m in FINE]),
    "instant": (timestamp_ltz(3), [None if m is None else m.replace(tzinfo=dt.UTC) for m in MOMENTS]),
    "fine_instant": (timestamp_ltz(6), [None if m is None else m.replace(tzinfo=dt.UTC) for m in FINE]),
    "span": (INTERVAL_DAY_TIME, [None if v is None else dt.timedelta(milliseconds=v) for v in (
        None, 0, 1, -1, 1000, -1000, 86_400_000, -86_400_000, 90_061_001, 3_600_000, 31 * 86_400_000, 1500, -90_061_001)]),
    "months": (INTERVAL_YEAR_MONTH, [None, 0, 1, -1, 12, -12, 13, 1200, -1200, 5]),
    "ints": (array(INT), [None, [], [1], [1, 2, 3], [3, None, 1, 1], [None], [-5, 0, 2**31 - 1], [2, 2]]),
    "words": (array(STRING), [None, [], ["a"], ["b", "a", None, "a"], ["", "😀"], [None, None], ["ü", "z", "Z"]]),
    "reals": (array(DOUBLE), [None, [], [1.5, None, -0.0], [0.0, NAN, INF], [NAN, NAN, 2.0], [-INF, 1e300]]),
    "nested": (array(array(INT)), [None, [], [[1], None, []], [[2, None], [1, 3]]]),
    "ages": (map_of(STRING, INT), [None, [], [("a", 1)], [("b", None), ("a", 2)], [("", 0), ("😀", -1)]]),
    "codes": (map_of(INT, STRING), [None, [], [(1, "a"), (2, None)], [(-1, "")]]),
    "person": (row(("name", STRING), ("age", INT)), [None, {"name": "a", "age": 1}, {"name": None, "age": None}, {"name": "b", "age": 2}]),
    "members": (array(row(("k", STRING), ("v", STRING))), [
        None, [], [{"k": "b\n", "v": "1"}, {"k": "a", "v": '"x"'}],
        [{"k": "\ue000", "v": None}, {"k": "😀", "v": ""}, {"k": "", "v": "[]"}],
        [{"k": None, "v": "1"}], [{"k": "a", "v": "1"}, {"k": "a", "v": "2"}]]),
    "house": (row(("at", timestamp(3)), ("tags", array(STRING)), ("size", DOUBLE)), [
        None, {"at": dt.datetime(2024, 2, 29, 1, 2, 3, 4000), "tags": ["x", None], "size": 1.0}, {"at": None, "tags": [], "size": -0.0}]),
}  # fmt: skip
"""By name: a type and its edge values."""

SCHEMA = Schema.from_pairs(
    [("place", INT), *((f"{name}_{side}", type) for name, (type, _) in GRIDS.items() for side in "abc")]
)
"""`a` and `b` of any two grids are crossed; `c` is a third in some mixture."""


def table() -> pa.Table:
    """The grids as one table."""
    rows = range(SIDE * SIDE)
    columns = [pa.array(list(rows), pa.int32())]
    for type, values in GRIDS.values():
        own = pa.array(values, type.arrow)
        places = (
            [r // SIDE % len(values) for r in rows],
            [r % SIDE % len(values) for r in rows],
            [(r * 7 + r // SIDE * 3) % len(values) for r in rows],
        )
        columns.extend(own.take(pa.array(chosen)) for chosen in places)
    return pa.Table.from_arrays(columns, schema=SCHEMA.arrow)


def column(name: str, side: str = "a") -> ColumnRef:
    """A grid as an input of an expression."""
    position = SCHEMA.names.index(f"{name}_{side}")
    return ColumnRef(SCHEMA.types[position], position, SCHEMA.names[position])
