"""CAST gives what Flink gives; what cannot be converted is an error with value and row, or NULL for TRY_CAST."""

import datetime as dt
from decimal import Context, Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core import types as t
from flowrun.core.type_parser import parse_type
from flowrun.core.types import BIGINT, BOOLEAN, BYTES, DOUBLE, FLOAT, INT, STRING, TINYINT, decimal, time, timestamp
from flowrun.errors import DataError
from flowrun.functions.casts.casts import cast_array, cast_datum, is_fallible, read_array

D = Decimal
FAILS = object()


def at(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.replace(tzinfo=ZoneInfo("UTC"))


CASES = [
    # text to numbers: spaces around are ignored, integers lose their fraction
    ("STRING", "INT", [" 12 ", "+5", "-7.9", "0012", None, ".", "-.5"], [12, 5, -7, 12, None, 0, 0]),
    ("STRING", "INT", ["abc", "", "0x1F", "1e3", "2147483648", "99999999999999999999", "\t5\n", "-"], [FAILS] * 8),
    ("STRING", "TINYINT", ["127", "-128", "128"], [127, -128, FAILS]),
    ("STRING", "BIGINT", ["9223372036854775807", "9223372036854775808"], [2**63 - 1, FAILS]),
    ("STRING", "DOUBLE", ["1.5", "1e5", " .5 ", "Infinity", "inf", "x", "\t5\n", "1.5f", "-NaN", "5\xa0"],
     [1.5, 1e5, 0.5, float("inf"), FAILS, FAILS, 5.0, 1.5, float("nan"), FAILS]),
    ("STRING", "DECIMAL(6, 2)", ["1.005", "-1.005", "1e2", "12345.6", "x"], [D("1.01"), D("-1.01"), D("100.00"), FAILS, FAILS]),
    ("STRING", "BOOLEAN", ["TRUE", "t", "yes", "1", "No", "maybe", " t "], [True, True, True, True, False, FAILS, FAILS]),
    ("STRING", "DATE", ["2024-03-01", "2024-3-1", "2024-03-01 10:00", "2024-03", "2024", "24-3-1", "2024-02-30", "x", "2024-03-01T10:00"],
     [*[dt.date(2024, 3, 1)] * 4, dt.date(2024, 1, 1), dt.date(24, 3, 1), FAILS, FAILS, FAILS]),
    ("STRING", "TIME(0)", ["10:11:12", "1:2", "25:00:00", "7"], [dt.time(10, 11, 12), dt.time(1, 2), FAILS, dt.time(7)]),
    ("STRING", "TIME(3)", ["10:11:12.1235", "10:11:12.9996", "10:11:12.12349", "23:59:59.9995"],
     [dt.time(10, 11, 12, 124000), dt.time(10, 11, 13), dt.time(10, 11, 12, 123000), FAILS]),
    ("STRING", "TIME(6)", ["10:11:12.1234567", "10 : 11"], [dt.time(10, 11, 12, 123456), dt.time(10, 11)]),
    ("STRING", "TIMESTAMP(3)", ["2024-03-01 10:00:00.123456", "2024-3-1", "2024-03-01 10", "2024-13-01", "2024-03-01T10:00:00",
      "2024-03-01 10:00", " 2024-03-01", "2024-02-30", "2024-02-29 24:00:00", "2024-02-29 24:00:01", "0000-01-01"],
     [at("2024-03-01T10:00:00.123"), at("2024-03-01"), *[FAILS] * 5, at("2024-02-29"), at("2024-03-01"), FAILS, FAILS]),
    ("STRING", "TIMESTAMP_LTZ(3)", ["2024-03-01T10:00:00Z", "2024-03-01 10:00:00", "2024-03-01 10:00:00Z"],
     [FAILS, at("2024-03-01T10:00:00+00:00"), FAILS]),
    ("STRING", "BYTES", ["aü"], ["aü".encode()]),
    # numbers among themselves
    ("DOUBLE", "INT", [1.9, -1.9, 2147483647.5, 2147483648.0, float("nan")], [1, -1, 2147483647, FAILS, FAILS]),
    ("DOUBLE", "BIGINT", [9.2e18, 9223372036854775808.0, -9223372036854775808.0], [9200000000000000000, FAILS, -(2**63)]),
    ("DOUBLE", "FLOAT", [0.5, 1e39, float("inf")], [0.5, FAILS, float("inf")]),
    ("DOUBLE", "DECIMAL(4, 2)", [0.125, -0.125, 2.675, 99.999, float("inf")], [D("0.13"), D("-0.13"), D("2.68"), FAILS, FAILS]),
    ("BIGINT", "INT", [5, 2**31, -(2**31) - 1, None], [5, FAILS, FAILS, None]),
    ("BIGINT", "DECIMAL(3, 1)", [99, 100, -100], [D("99.0"), FAILS, FAILS]),
    ("BIGINT", "DECIMAL(38, 30)", [5, 10**9], [D("5." + "0" * 30), FAILS]),
    ("DECIMAL(10, 2)", "INT", [D("1.99"), D("-1.99"), D("99999999.99")], [1, -1, 99999999]),
    ("DECIMAL(20, 2)", "INT", [D("99999999999.00"), D("-5.50")], [FAILS, -5]),
    ("DECIMAL(10, 2)", "DECIMAL(3, 1)", [D("9.95"), D("-9.95"), D("9.94"), D("99.95"), D("100")],
     [D("10.0"), D("-10.0"), D("9.9"), FAILS, FAILS]),
    ("DECIMAL(38, 2)", "DECIMAL(38, 10)", [D("1.50"), D(10) ** 30], [D("1.5000000000"), FAILS]),
    ("DECIMAL(10, 2)", "DOUBLE", [D("1.25")], [1.25]),
    ("BOOLEAN", "INT", [True, False, None], [1, 0, None]),
    ("BOOLEAN", "DECIMAL(5, 2)", [True], [D("1.00")]),
    ("INT", "BOOLEAN", [0, -3, None], [False, True, None]),
    ("DOUBLE", "BOOLEAN", [0.0, -0.0, 0.5, float("nan"), None], [False, False, True, True, None]),
    ("FLOAT", "BOOLEAN", [0.0, 1e-30], [False, True]),
    ("DECIMAL(5, 2)", "BOOLEAN", [D("0.00"), D("0.01"), None], [False, True, None]),
    ("DECIMAL(20, 5)", "DOUBLE", [D("12.00000"), D("99999.99999"), None], [12.0, 99999.99999, None]),
    ("DECIMAL(7, 2)", "FLOAT", [D("-99999.99")], [-99999.9921875]),
    # anything to text
    ("BOOLEAN", "STRING", [True, False, None], ["TRUE", "FALSE", None]),
    ("DOUBLE", "STRING", [1.0, 0.1, 1e7, 9999999.5, 1e-3, 9.99e-4, -0.0, 1.5e300, float("nan"), float("-inf")],
     ["1.0", "0.1", "1.0E7", "9999999.5", "0.001", "9.99E-4", "-0.0", "1.5E300", "NaN", "-Infinity"]),
    ("FLOAT", "STRING", [0.1, 100.0, 3.0e10], ["0.1", "100.0", "3.0E10"]),
    ("DECIMAL(10, 2)", "STRING", [D("10.50"), D("-0.01")], ["10.50", "-0.01"]),
    ("DECIMAL(20, 10)", "STRING", [D("0.0000000001"), D("1")], ["0.0000000001", "1.0000000000"]),
    ("TIMESTAMP(3)", "STRING", [at("2024-03-01T10:00:00.120"), at("1969-12-31T23:59:59.999")],
     ["2024-03-01 10:00:00.120", "1969-12-31 23:59:59.999"]),
    ("TIMESTAMP(0)", "STRING", [at("2024-03-01T10:00:00")], ["2024-03-01 10:00:00"]),
    ("TIMESTAMP_LTZ(6)", "STRING", [at("2024-03-01T10:00:00.5+00:00")], ["2024-03-01 10:00:00.500000"]),
    ("DATE", "STRING", [dt.date(2024, 3, 1)], ["2024-03-01"]),
    ("TIME(0)", "STRING", [dt.time(9, 8, 7)], ["09:08:07"]),
    ("INTERVAL DAY TO SECOND", "STRING", [93_784_005, -1], ["+1 02:03:04.005", "-0 00:00:00.001"]),
    ("INTERVAL YEAR TO MONTH", "STRING", [14, -1], ["+1-02", "-0-01"]),
    ("BYTES", "STRING", [b"a\xc3\xbc", b"\xff"], ["aü", "�"]),
    ("ARRAY<INT>", "STRING", [[1, None], [], None], ["[1, NULL]", "[]", None]),
    ("MAP<STRING, INT>", "STRING", [[("a", 1), ("b", None)], None], ["{a=1, b=NULL}", None]),
    ("ROW<a INT, b STRING>", "STRING", [{"a": 1, "b": None}, None], ["(1, NULL)", None]),
    ("INT", "CHAR(4)", [7, 12345], ["7   ", "1234"]),
    ("STRING", "VARCHAR(2)", ["ü☂x", "a"], ["ü☂", "a"]),
    ("CHAR(1)", "CHAR(3)", ["a"], ["a  "]),
    # times
    ("TIMESTAMP(3)", "DATE", [at("2024-03-01T23:59:59.999"), at("1969-12-31T00:00:00.001")], [dt.date(2024, 3, 1), dt.date(1969, 12, 31)]),
    ("TIMESTAMP(3)", "TIME(0)", [at("1969-12-31T01:02:03.999")], [dt.time(1, 2, 3)]),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", [at("2024-03-01T00:00:00.123999"), None], [at("2024-03-01T00:00:00.123"), None]),
    ("TIMESTAMP(3)", "TIMESTAMP(1)", [at("2024-03-01T00:00:00.199")], [at("2024-03-01T00:00:00.1")]),
    ("DATE", "TIMESTAMP(3)", [dt.date(2024, 3, 1)], [at("2024-03-01")]),
    ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", [at("2024-03-01T05:00:00")], [at("2024-03-01T05:00:00+00:00")]),
    ("TIME(0)", "TIMESTAMP(3)", [dt.time(5)], [at("1970-01-01T05:00:00")]),
    ("INTERVAL DAY TO SECOND", "BIGINT", [1500], [1500]),
    # nested
    ("ARRAY<STRING>", "ARRAY<INT>", [["1", " 2"], [], ["x"], None], [[1, 2], [], FAILS, None]),
    ("MAP<STRING, STRING>", "MAP<INT, BIGINT>", [[("1", "2")], None, [("a", "2")], [("1", "b")]], [[(1, 2)], None, FAILS, FAILS]),
    ("ROW<a STRING, b INT>", "ROW<x INT, y STRING>", [{"a": "1", "b": 2}, {"a": "q", "b": 2}, None], [{"x": 1, "y": "2"}, FAILS, None]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "values", "expected"), CASES)
def test_cast_and_try_cast(source, target, values, expected):
    from_type, to_type = parse_type(source), parse_type(target)
    column = pa.array(values, from_type.arrow)
    nulled = [None if e is FAILS else e for e in expected]

    tried = cast_array(column, from_type, to_type, safe=True)
    assert tried.type == to_type.arrow
    assert str(tried.to_pylist()) == str(nulled)

    for position, wanted in enumerate(expected):
        one = column.slice(position, 1)
        if wanted is FAILS:
            assert is_fallible(from_type, to_type)
            with pytest.raises(DataError, match="cannot cast"):
                cast_array(one, from_type, to_type)
        else:
            assert str(cast_array(one, from_type, to_type).to_pylist()) == str([wanted])
            scalar = cast_datum(column[position], from_type, to_type)
            assert str(scalar.as_py()) == str(wanted)


def test_a_failed_cast_names_value_type_and_row():
    with pytest.raises(DataError, match=r"cannot cast 'x' to INT") as caught:
        cast_array(pa.array(["1", None, "x", "y"]), STRING, INT)
    assert caught.value.row == 2
    assert caught.value.hint == "use TRY_CAST to get NULL instead"


def test_a_failed_element_names_the_row_that_holds_it():
    with pytest.raises(DataError) as caught:
        cast_array(pa.array([["1", "2"], [], ["3", "x"]]), t.array(STRING), t.array(INT))
    assert caught.value.row == 2


def test_slices_cast_like_whole_columns():
    column = pa.array([[("a", "1")], None, [("b", "2"), ("c", "3")], []], t.map_of(STRING, STRING).arrow)
    whole = cast_array(column, t.map_of(STRING, STRING), t.map_of(STRING, INT))
    part = cast_array(column.slice(1, 3), t.map_of(STRING, STRING), t.map_of(STRING, INT))
    assert part.to_pylist() == whole.to_pylist()[1:]
    assert cast_array(column.slice(2), t.map_of(STRING, STRING), STRING).to_pylist() == ["{b=2, c=3}", "{}"]


@given(st.floats(allow_nan=False, width=64))
def test_the_text_of_a_double_reads_back_to_it(value):
    text = cast_array(pa.array([value]), DOUBLE, STRING)
    assert cast_array(text, STRING, DOUBLE).to_pylist() == [value]
    shown = text[0].as_py()
    assert "." in shown or "Infinity" in shown


@given(
    st.lists(
        st.one_of(
            st.none(), st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**8), max_value=10**8)
        )
    )
)
def test_decimals_round_half_up_like_java(values):
    column = pa.array(values, pa.decimal128(14, 4))
    rounded = cast_array(column, t.decimal(14, 4), t.decimal(14, 1)).to_pylist()
    assert rounded == [None if v is None else v.quantize(D("0.1"), rounding="ROUND_HALF_UP") for v in values]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))))
def test_integers_survive_text_and_decimal(values):
    column = pa.array(values, pa.int64())
    assert cast_array(cast_array(column, BIGINT, STRING), STRING, BIGINT).to_pylist() == values
    assert cast_array(cast_array(column, BIGINT, t.decimal(19, 0)), t.decimal(19, 0), BIGINT).to_pylist() == values


@given(
    st.integers(1, 38).flatmap(
        lambda precision: st.tuples(
            st.just(precision),
            st.integers(0, precision),
            st.lists(st.none() | st.integers(1 - 10**precision, 10**precision - 1)),
        )
    )
)
def test_decimals_become_the_nearest_doubles(given: tuple[int, int, list[int | None]]):
    precision, scale, numbers = given
    values = [None if n is None else D(n).scaleb(-scale, Context(prec=50)) for n in numbers]
    source = decimal(precision, scale)
    column = pa.array([None, *values], source.arrow).slice(1)
    found = cast_array(column, source, DOUBLE).to_pylist()
    assert found == [None if v is None else float(v) for v in values]


def test_what_can_fail_is_known():
    assert not is_fallible(INT, BIGINT)
    assert not is_fallible(INT, t.decimal(10, 0))
    assert is_fallible(INT, t.decimal(9, 0))
    assert is_fallible(t.decimal(10, 2), t.decimal(9, 1))
    assert not is_fallible(t.decimal(10, 2), t.decimal(10, 1))
    assert is_fallible(FLOAT, TINYINT)
    assert not is_fallible(BOOLEAN, INT)
    assert not is_fallible(BYTES, STRING)


def test_numbers_of_too_many_digits_are_refused_not_zero():
    assert cast_array(pa.array([1e300, 1.5]), DOUBLE, decimal(10, 2), safe=True).to_pylist() == [None, Decimal("1.50")]
    texts = pa.array(["1" + "0" * 80, "1e300", "9" * 38, "0" * 90 + "7"])
    assert cast_array(texts, STRING, decimal(38, 0), safe=True).to_pylist() == [None, None, Decimal("9" * 38), 7]
    with pytest.raises(DataError, match="cannot cast"):
        cast_array(texts, STRING, decimal(38, 0))


def test_fractions_are_cut_to_the_precision_of_the_type():
    moments = pa.array(["2024-01-02 03:04:05.567", "2024-01-02 03:04:06"])
    second, third = dt.datetime(2024, 1, 2, 3, 4, 5), dt.datetime(2024, 1, 2, 3, 4, 6)
    assert cast_array(moments, STRING, timestamp(0)).to_pylist() == [second, third]
    assert cast_array(moments, STRING, timestamp(1)).to_pylist() == [second + dt.timedelta(milliseconds=500), third]
    assert cast_array(pa.array(["03:04:05.567"]), STRING, time(0)).to_pylist() == [dt.time(3, 4, 5)]
    assert cast_array(pa.array(["03:04:05.567"]), STRING, time(2)).to_pylist() == [dt.time(3, 4, 5, 560000)]


def test_the_least_doubles_have_two_digits_as_in_java():
    assert cast_array(pa.array([5e-324, -1e-323, 2e10]), DOUBLE, STRING).to_pylist() == [
        "4.9E-324",
        "-9.9E-324",
        "2.0E10",
    ]
    assert cast_array(pa.array([1e-45], pa.float32()), FLOAT, STRING).to_pylist() == ["1.4E-45"]


WRITTEN = [
    ("DATE", ["2024-03-01", " 2024-3-1 ", "2024-03-01T10:00"], ["2024", "2024-02-30"], dt.date(2024, 3, 1)),
    ("TIME(0)", ["10:00:00", "10:00 ", "10:00:00.9"], ["10", "24:00"], dt.time(10)),
    ("TIMESTAMP(0)", ["2024-03-01T10:00:00", "2024-03-01 10:00", " 2024-3-1 10:0:0.5"], ["2024-02-30", "2024-03-01 24:00:00", "2024"],
     at("2024-03-01T10:00")),
    ("TIMESTAMP_LTZ(3)", ["2024-03-01T10:00:00Z", "2024-03-01 10:00+00:00", "2024-03-01 10:00"], ["2024-03-01 10:00+01:00"],
     at("2024-03-01T10:00:00+00:00")),
    ("BOOLEAN", [" true", "T"], ["maybe"], True),
    ("INT", ["7", " 7"], ["x"], 7),
]  # fmt: skip


@pytest.mark.parametrize(("target", "good", "bad", "value"), WRITTEN, ids=[w[0] for w in WRITTEN])
def test_literals_and_rows_of_tests_may_be_written_in_more_forms_than_cast_reads(target, good, bad, value):
    type = parse_type(target)
    assert read_array(pa.array([*good, None]), type).to_pylist() == [value] * len(good) + [None]
    for text in bad:
        with pytest.raises(DataError, match="cannot cast"):
            read_array(pa.array([text]), type)
