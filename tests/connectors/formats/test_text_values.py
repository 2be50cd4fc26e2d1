"""Values from text: what is understood, what is not, and that bad values do not disturb their neighbours."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.connectors.formats.text_values import parse_text
from flowrun.connectors.formats.value_text import value_text
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TINYINT,
    DataType,
    decimal,
    time,
    timestamp,
    timestamp_ltz,
)
from tests.examples import examples

MOMENT = dt.datetime(2024, 3, 1, 10, 0, 0, 123000)


@pytest.mark.parametrize(
    ("target", "text", "value"),
    [
        (BIGINT, "-7", -7),
        (BIGINT, " +7 ", 7),
        (TINYINT, "127", 127),
        (DOUBLE, "1e3", 1000.0),
        (DOUBLE, "Infinity", float("inf")),
        (FLOAT, "0.5", 0.5),
        (BOOLEAN, "TRUE", True),
        (decimal(10, 2), "10.13", Decimal("10.13")),
        (decimal(10, 2), "1.005", Decimal("1.01")),
        (decimal(10, 2), "-1.005", Decimal("-1.01")),
        (decimal(38, 0), "9" * 38, Decimal("9" * 38)),
        (decimal(10, 2), "1e-999999999", Decimal("0.00")),
        (decimal(10, 2), " 5e-3 ", Decimal("0.01")),
        (decimal(10, 2), "0." + "0" * 90 + "1", Decimal("0.00")),
        (decimal(10, 2), "1E+2", Decimal("100.00")),
        (STRING, "", ""),
        (BYTES, "YWJj", b"abc"),
        (DATE, "2024-03-01", dt.date(2024, 3, 1)),
        (time(0), "10:00", dt.time(10)),
        (time(3), "10:00:00.5", dt.time(10, 0, 0, 500000)),
        (timestamp(3), "2024-03-01 10:00:00.123", MOMENT),
        (timestamp(3), "2024-03-01T10:00:00.123999999", MOMENT),
        (timestamp(6), "2024-03-01T12:00:00.123+02:00", MOMENT),
        (timestamp(6), "2024-03-01T04:30:00.123-0530", MOMENT),
        (timestamp(3), "2024-03-01", dt.datetime(2024, 3, 1)),
        (timestamp(3), "9999-12-31 23:59:59.999", dt.datetime(9999, 12, 31, 23, 59, 59, 999000)),
        (timestamp(3), "1969-12-31 23:59:59.9999", dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
        (timestamp_ltz(3), "2024-03-01 10:00:00.123", MOMENT.replace(tzinfo=dt.UTC)),
        (timestamp_ltz(3), "2024-03-01T10:00:00.123Z", MOMENT.replace(tzinfo=dt.UTC)),
    ],
)
def test_what_is_understood(target: DataType, text: str, value: Any) -> None:
    parsed = parse_text(pa.array([text, None]), target)
    assert parsed.bad == {}
    assert parsed.values.type == target.arrow
    assert parsed.values.to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (BIGINT, "1.5"),
        (BIGINT, ""),
        (TINYINT, "128"),
        (DOUBLE, "one"),
        (BOOLEAN, "yes"),
        (decimal(4, 2), "100"),
        (decimal(4, 2), "99.995"),
        (decimal(4, 2), "1e999999999"),
        (decimal(4, 2), "Infinity"),
        (decimal(4, 2), "e"),
        (BYTES, "a"),
        (DATE, "2024-02-30"),
        (DATE, "today"),
        (time(0), "25:00"),
        (timestamp(3), "2024-03-01 25:00:00"),
        (timestamp(3), "yesterday"),
        (timestamp(9), "9999-12-31 00:00:00"),
    ],
)
def test_what_is_not(target: DataType, text: str) -> None:
    parsed = parse_text(pa.array([None, text]), target)
    assert list(parsed.bad) == [1]
    assert str(target) in parsed.bad[1]
    assert parsed.values.null_count == 2


@examples(60)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**70), 2**70).map(str), st.text(max_size=3)), max_size=40))
def test_bad_values_among_good_ones_are_exactly_found(texts: list[str | None]) -> None:
    parsed = parse_text(pa.array(texts, pa.string()), BIGINT)
    for i, (text, value) in enumerate(zip(texts, parsed.values.to_pylist(), strict=True)):
        try:
            good = text is None or -(2**63) <= int(text) < 2**63
        except ValueError:
            good = False
        if good and (text is None or text.isascii()) and "_" not in (text or ""):
            assert i not in parsed.bad
            assert value == (None if text is None else int(text))
        elif not (text or "").isascii() or "_" in (text or ""):
            continue  # digits of other scripts: Python reads them, SQL does not
        else:
            assert i in parsed.bad
            assert value is None


@examples(60)
@given(st.data())
def test_text_of_values_reads_back_equal(data: st.DataObject) -> None:
    cases: list[tuple[DataType, st.SearchStrategy[Any]]] = [
        (BIGINT, st.integers(-(2**63), 2**63 - 1)),
        (DOUBLE, st.floats(allow_nan=False)),
        (decimal(38, 18), st.decimals(-(10**19), 10**19, places=18, allow_nan=False)),
        (timestamp(6), st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))),
        (DATE, st.dates()),
        (time(6), st.times()),
        (BYTES, st.binary(max_size=5)),
    ]
    target, values = data.draw(st.sampled_from(cases))
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=10)), target.arrow)
    parsed = parse_text(value_text(column, target), target)
    assert parsed.bad == {}
    assert parsed.values.equals(column)


def test_numbers_look_like_numbers() -> None:
    assert value_text(pa.array([1.0, 0.1, 1e300, float("nan"), float("-inf"), -0.0, None]), DOUBLE).to_pylist() == [
        "1.0",
        "0.1",
        "1e+300",
        "NaN",
        "-Infinity",
        "-0.0",
        None,
    ]
    tiny = pa.array([Decimal("0E-18"), Decimal("1E-18"), Decimal(5)], pa.decimal128(38, 18))
    assert value_text(tiny, decimal(38, 18)).to_pylist() == ["0." + "0" * 18, "0." + "0" * 17 + "1", "5." + "0" * 18]


@pytest.mark.parametrize("iso", [False, True])
def test_repeated_moments_are_spelled_as_single_ones(iso: bool) -> None:
    moments = [MOMENT, None, MOMENT + dt.timedelta(seconds=1)] * 3
    repeated = pa.array(moments, pa.timestamp("ms"))
    single = [value_text(repeated.slice(i, 1), timestamp(3), iso=iso)[0].as_py() for i in range(len(moments))]
    assert value_text(repeated, timestamp(3), iso=iso).to_pylist() == single
