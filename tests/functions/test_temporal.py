"""Functions of dates and times, and of times as text."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.core.clock import ManualClock
from flowrun.core.types import (
    BIGINT,
    DATE,
    INT,
    INTERVAL_DAY_TIME,
    INTERVAL_YEAR_MONTH,
    STRING,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.times.calendar_units import add_months, months_between
from flowrun.functions.times.current_time import use_clock
from flowrun.functions.times.date_format import compile_pattern
from tests.functions.kernel_calls import Column, Constant, call, check, signature

T3, LTZ3 = timestamp(3), timestamp_ltz(3)


def at(text, type=T3):
    moment = dt.datetime.fromisoformat(text)
    return Constant(moment.replace(tzinfo=dt.UTC) if type == LTZ3 else moment, type)


def day(text):
    return Constant(dt.date.fromisoformat(text), DATE)


def clock_time(text):
    return Constant(dt.time.fromisoformat(text), time(0))


MOMENT = at("2024-03-01 09:58:30.640")
LONG_INTERVAL = Constant(-dt.timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=567), INTERVAL_DAY_TIME)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("YEAR", 2024), ("QUARTER", 1), ("MONTH", 3), ("WEEK", 9), ("DAY", 1), ("DOY", 61), ("DOW", 6), ("ISODOW", 5),
        ("ISOYEAR", 2024), ("HOUR", 9), ("minute", 58), ("SECOND", 30), ("MILLISECOND", 640), ("MICROSECOND", 640000),
        ("EPOCH", 1709287110), ("DECADE", 202), ("CENTURY", 21), ("MILLENNIUM", 3),
    ],
)  # fmt: skip
def test_extract(unit, expected):
    check("EXTRACT", (unit, MOMENT), expected)
    check("EXTRACT", (unit, at("2024-03-01 09:58:30.640", LTZ3)), expected)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("YEAR", (day("1994-09-27"),), 1994),
        ("QUARTER", (day("1994-09-27"),), 3),
        ("WEEK", (day("1994-09-27"),), 39),
        ("DAYOFYEAR", (day("1994-09-27"),), 270),
        ("DAYOFMONTH", (day("1994-09-27"),), 27),
        ("DAYOFWEEK", (day("1994-09-27"),), 3),
        ("HOUR", (MOMENT,), 9),
        ("SECOND", (clock_time("12:44:31"),), 31),
        ("EXTRACT", ("HOUR", day("1994-09-27")), 0),
        ("EXTRACT", ("EPOCH", at("1969-12-31 23:59:59.500")), -1),
        ("EXTRACT", ("DAY", LONG_INTERVAL), -1),
        ("EXTRACT", ("HOUR", LONG_INTERVAL), -2),
        ("EXTRACT", ("SECOND", LONG_INTERVAL), -4),
        ("EXTRACT", ("MILLISECOND", LONG_INTERVAL), -567),
        ("EXTRACT", ("YEAR", Constant(64, INTERVAL_YEAR_MONTH)), 5),
        ("EXTRACT", ("MONTH", Constant(-63, INTERVAL_YEAR_MONTH)), -3),
        ("EXTRACT", ("QUARTER", Constant(64, INTERVAL_YEAR_MONTH)), 2),
        ("FLOOR", (MOMENT, "MINUTE"), dt.datetime(2024, 3, 1, 9, 58)),
        ("CEIL", (MOMENT, "MINUTE"), dt.datetime(2024, 3, 1, 9, 59)),
        ("CEIL", (at("2024-03-01 00:00:00"), "DAY"), dt.datetime(2024, 3, 1)),
        ("FLOOR", (MOMENT, "WEEK"), dt.datetime(2024, 2, 25)),
        ("FLOOR", (MOMENT, "QUARTER"), dt.datetime(2024, 1, 1)),
        ("FLOOR", (at("1969-12-31 23:59:30"), "MINUTE"), dt.datetime(1969, 12, 31, 23, 59)),
        ("FLOOR", (MOMENT, "CENTURY"), dt.datetime(2001, 1, 1)),
        ("CEIL", (MOMENT, "DECADE"), dt.datetime(2030, 1, 1)),
        ("FLOOR", (day("2024-03-15"), "MONTH"), dt.date(2024, 3, 1)),
        ("FLOOR", (clock_time("12:44:31"), "MINUTE"), dt.time(12, 44)),
        ("CEIL", (clock_time("12:44:31"), "MINUTE"), dt.time(12, 45)),
        ("TIMESTAMPADD", ("SECOND", 90, MOMENT), dt.datetime(2024, 3, 1, 10, 0, 0, 640000)),
        ("TIMESTAMPADD", ("MONTH", 1, at("2024-01-31 12:00:00")), dt.datetime(2024, 2, 29, 12)),
        ("TIMESTAMPADD", ("YEAR", -1, day("2024-02-29")), dt.date(2023, 2, 28)),
        ("TIMESTAMPADD", ("WEEK", 1, day("2024-02-29")), dt.date(2024, 3, 7)),
        ("TIMESTAMPADD", ("HOUR", 25, day("2024-02-29")), dt.datetime(2024, 3, 1, 1)),
        ("TIMESTAMPADD", ("HOUR", 2, clock_time("23:30:00")), dt.time(1, 30)),
        ("TIMESTAMPDIFF", ("SECOND", at("2024-03-01 09:00:00"), MOMENT), 3510),
        ("TIMESTAMPDIFF", ("DAY", at("2024-03-02 09:00:00"), MOMENT), 0),
        ("TIMESTAMPDIFF", ("DAY", day("2003-01-02"), day("2003-01-03")), 1),
        ("TIMESTAMPDIFF", ("MONTH", at("2024-01-31 10:00:00"), at("2024-02-29 09:00:00")), 0),
        # backwards, as Flink 2.3 gave it
        ("TIMESTAMPDIFF", ("MONTH", at("2024-12-31 12:00:00"), at("2024-05-31 00:00:00")), -8),
        ("TIMESTAMPDIFF", ("MONTH", at("2024-12-31 00:00:00"), at("2024-05-31 12:00:00")), -7),
        ("TIMESTAMPDIFF", ("MONTH", at("2023-02-28 12:00:00"), at("2021-02-28 23:59:57")), -24),
        ("TIMESTAMPDIFF", ("QUARTER", at("2024-12-31 18:00:00"), at("2024-03-31 18:00:01")), -3),
        ("TIMESTAMPDIFF", ("MONTH", at("2024-06-15 18:00:00"), at("2024-06-15 00:00:00")), -1),
        ("TIMESTAMPDIFF", ("QUARTER", day("2024-01-01"), day("2024-12-31")), 3),
        ("TIMESTAMPDIFF", ("YEAR", day("2024-03-01"), day("2020-03-01")), -4),
        ("DATE_FORMAT", (MOMENT, "yyyy-MM-dd HH:mm"), "2024-03-01 09:58"),
        ("DATE_FORMAT", (MOMENT, "yyyyMMdd'T'HHmmss.SSSSSS"), "20240301T095830.640000"),
        ("DATE_FORMAT", (MOMENT, "EEEE, d MMMM yy h:mm a 'o''clock'"), "Friday, 1 March 24 9:58 AM o'clock"),
        ("DATE_FORMAT", (MOMENT, "DDD QQQ k K e ☂ XXX"), "061 Q1 9 9 6 ☂ Z"),
        ("DATE_FORMAT", (day("2024-03-01"), "dd.MM.yyyy"), "01.03.2024"),
        ("DATE_FORMAT", ("2024-03-01 09:58:30", "HH"), "09"),
        ("TO_TIMESTAMP", ("2024-03-01 09:58:30.64",), dt.datetime(2024, 3, 1, 9, 58, 30, 640000)),
        ("TO_TIMESTAMP", ("2024-03-01",), dt.datetime(2024, 3, 1)),
        ("TO_TIMESTAMP", ("01/03/2024 9:05", "dd/MM/yyyy H:mm"), dt.datetime(2024, 3, 1, 9, 5)),
        ("TO_TIMESTAMP", ("20240301095830", "yyyyMMddHHmmss"), dt.datetime(2024, 3, 1, 9, 58, 30)),
        ("TO_TIMESTAMP", ("1 Mar 2024, 3 PM", "d MMM yyyy, h a"), dt.datetime(2024, 3, 1, 15)),
        ("TO_TIMESTAMP", ("2024-03-01 10:00:00 +02:00", "yyyy-MM-dd HH:mm:ss XXX"), dt.datetime(2024, 3, 1, 8)),
        ("TO_TIMESTAMP", ("2024-061", "yyyy-DDD"), dt.datetime(2024, 3, 1)),
        ("TO_TIMESTAMP", ("2024-13-01 00:00:00",), None),
        ("TO_TIMESTAMP", ("tomorrow",), None),
        ("TO_TIMESTAMP", ("2024-03-01T09:58:30",), None),
        ("TO_TIMESTAMP", ("2024-02-30 24:00:00",), dt.datetime(2024, 3, 1)),
        ("TO_TIMESTAMP", ("09:58", "HH:mm"), dt.datetime(1970, 1, 1, 9, 58)),
        ("TO_TIMESTAMP", ("02-30", "MM-dd"), None),
        ("TO_DATE", ("2024",), dt.date(2024, 1, 1)),
        ("TO_DATE", ("2024-02-45 x", "yyyy-MM-dd"), dt.date(2024, 3, 16)),
        ("TO_DATE", ("99999-01-01", "yyyy-MM-dd"), None),
        ("TO_DATE", ("2024-02-29",), dt.date(2024, 2, 29)),
        ("TO_DATE", ("2023-02-29",), None),
        ("TO_DATE", ("29.02.2024", "dd.MM.yyyy"), dt.date(2024, 2, 29)),
        ("FROM_UNIXTIME", (44,), "1970-01-01 00:00:44"),
        ("FROM_UNIXTIME", (-1, "yyyy/MM/dd HH"), "1969/12/31 23"),
        ("UNIX_TIMESTAMP", ("1970-01-01 08:00:01",), 28801),
        ("UNIX_TIMESTAMP", ("1970-01-01 08:00:01.001", "yyyy-MM-dd HH:mm:ss.SSS"), 28801),
        ("UNIX_TIMESTAMP", ("1970-01-01 08:00:01.001 +0800", "yyyy-MM-dd HH:mm:ss.SSS X"), 1),
        ("UNIX_TIMESTAMP", ("x",), -(2**63)),
        ("UNIX_TIMESTAMP", ("2024-02-29 10:00:00", "yyyy-MM-dd"), 1_709_164_800),
        ("UNIX_TIMESTAMP", ("1969-12-31 23:59:59.500", "yyyy-MM-dd HH:mm:ss.SSS"), 0),
        ("UNIX_TIMESTAMP", ("whatever", ""), 0),
        ("UNIX_TIMESTAMP", ("9" * 9000, "s"), 2**31 - 1),
        ("UNIX_TIMESTAMP", ("-" + "0" * 9000 + "7", "s"), -7),
        ("UNIX_TIMESTAMP", ("-" + "9" * 300 + "E-299", "s"), -9),
        ("TO_DATE", ("9" * 9000,), None),
        ("TO_DATE", ("0" * 9000 + "2024",), dt.date(2024, 1, 1)),
        ("TO_TIMESTAMP", ("2024-01-01 " + "9" * 9000 + ":0:0", "yyyy"), None),
        ("UNIX_TIMESTAMP", ("99999999-01-01 00:00:00",), 3_155_633_001_244_800),
        ("TO_TIMESTAMP_LTZ", (100, 0), dt.datetime(1970, 1, 1, 0, 1, 40, tzinfo=dt.UTC)),
        ("TO_TIMESTAMP_LTZ", (12345, 1), dt.datetime(1970, 1, 1, 0, 20, 34, 500000, tzinfo=dt.UTC)),
        ("TO_TIMESTAMP_LTZ", (1234567890123456, 6), dt.datetime(2009, 2, 13, 23, 31, 30, 123456, tzinfo=dt.UTC)),
        ("TO_TIMESTAMP_LTZ", (-1.5, 0), dt.datetime(1969, 12, 31, 23, 59, 58, 500000, tzinfo=dt.UTC)),
        ("TO_TIMESTAMP_LTZ", (-2.25, 3), dt.datetime(1969, 12, 31, 23, 59, 59, 997000, tzinfo=dt.UTC)),
        ("TO_TIMESTAMP_LTZ", (100, 3), dt.datetime(1970, 1, 1, 0, 0, 0, 100000, tzinfo=dt.UTC)),
        ("CONVERT_TZ", ("1970-01-01 00:00:00", "UTC", "America/Los_Angeles"), "1969-12-31 16:00:00"),
        ("CONVERT_TZ", ("1970-01-01 00:00:00", "GMT-08:00", "UTC"), "1970-01-01 08:00:00"),
        ("CONVERT_TZ", ("x", "UTC", "UTC"), None),
        ("CONVERT_TZ", ("2024-02-29 24:00:00.9", "UTC", "Asia/Shanghai"), "2024-03-01 08:00:00"),
        ("CONVERT_TZ", ("1700-01-01 00:00:00", "UTC", "Asia/Shanghai"), "1700-01-01 08:00:00"),
        ("CONVERT_TZ", ("9999-12-31 00:00:00", "America/New_York", "Europe/Berlin"), "9999-12-31 06:00:00"),
        ("CONVERT_TZ", ("2024-07-01 00:00:00", "America/New_York", "Europe/Berlin"), "2024-07-01 06:00:00"),
    ],
)  # fmt: skip
def test_values(name, arguments, expected):
    check(name, arguments, expected)


def test_text_in_a_zone_becomes_an_instant():
    got = call("TO_TIMESTAMP_LTZ", Column(["2023-07-01 12:00:00"]), "yyyy-MM-dd HH:mm:ss", "Europe/Berlin")
    assert got == [dt.datetime(2023, 7, 1, 10, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("EXTRACT", ("HOUR", Constant(None, T3))),
        ("FLOOR", (Constant(None, T3), "HOUR")),
        ("TIMESTAMPADD", ("DAY", Constant(None, INT), MOMENT)),
        ("TIMESTAMPADD", ("MONTH", 1, Constant(None, T3))),
        ("TIMESTAMPDIFF", ("DAY", Constant(None, T3), MOMENT)),
        ("DATE_FORMAT", (Constant(None, T3), "yyyy")),
        ("DATE_FORMAT", (MOMENT, Constant(None, STRING))),
        ("TO_TIMESTAMP", (Constant(None, STRING),)),
        ("UNIX_TIMESTAMP", (Constant(None, STRING),)),
        ("TO_DATE", (Constant(None, STRING), "yyyy")),
        ("CONVERT_TZ", (Constant(None, STRING), "UTC", "UTC")),
    ],
)
def test_null_gives_null(name, arguments):
    check(name, arguments, None)


def test_nulls_and_ties_within_a_column():
    column = Column([dt.datetime(2024, 3, 1, 9, 58, 30), None, dt.datetime(2024, 3, 1, 9, 58, 59)], T3)
    assert call("DATE_FORMAT", column, "HH:mm", sliced=True) == ["09:58", None, "09:58"]
    assert call("TIMESTAMPADD", "MONTH", 1, column, sliced=True)[1] is None
    texts = Column(["2024-03-01 00:00:00", None, "nope", "2024-03-01 00:00:00.5"])
    assert [v and v.microsecond for v in call("TO_TIMESTAMP", texts, sliced=True)] == [0, None, None, 500000]
    assert call("UNIX_TIMESTAMP", Column(["1970-01-01 00:00:01", None, "x"])) == [1, None, -(2**63)]


def test_text_that_misses_the_pattern_gets_a_second_chance_in_the_default_form():
    got = call("TO_TIMESTAMP", Column(["1999-9-10 05:20:10", "10.09.1999"]), "dd.MM.yyyy")
    assert got == [dt.datetime(1999, 9, 10, 5, 20, 10), dt.datetime(1999, 9, 10)]


def test_day_that_a_month_lacks_reads_as_its_last_one_as_in_java():
    assert call("TO_TIMESTAMP", Column(["2023-02-31 00:00:00"])) == [dt.datetime(2023, 2, 28)]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("EXTRACT", ("MINUT", MOMENT), "did you mean 'MINUTE'"),
        ("EXTRACT", ("YEAR", clock_time("10:00:00")), "a TIME has no YEAR"),
        ("EXTRACT", ("YEAR", LONG_INTERVAL), "an INTERVAL DAY TO SECOND has no YEAR"),
        ("TO_TIMESTAMP_LTZ", (1, 10), "up to 9"),
        ("FLOOR", (MOMENT,), "needs a unit"),
        ("FLOOR", (MOMENT, Column(["DAY"])), "must be a constant"),
        ("TIMESTAMPADD", ("DAY", 1, "2024-01-01"), "must be a DATE, TIME"),
        ("DATE_FORMAT", (MOMENT, "YYYY-MM-dd"), "letter 'Y' is not supported; did you mean y?"),
        ("DATE_FORMAT", (MOMENT, "yyyy'x"), "quote at position 5 is not closed"),
        ("DATE_FORMAT", (5, "yyyy"), "must be a DATE, TIMESTAMP or character string, INT given"),
        ("TO_TIMESTAMP", ("x", "bogus"), "letter 'b' is not supported"),
        ("UNIX_TIMESTAMP", ("x", "YYYY"), "times cannot be read by the letter 'Y'; did you mean y?"),
        ("UNIX_TIMESTAMP", ("x", "XXXX"), "too many 'X'"),
        ("TO_DATE", ("x", "yyyy-'"), "quote at position 6 is not closed"),
        ("CONVERT_TZ", ("x", "Mars/Base", "UTC"), "'Mars/Base' is not a time zone"),
        ("CONVERT_TZ", ("x", "UTC", "GMT+99:00"), "'GMT+99:00' is not a time zone"),
    ],
)
def test_wrong_calls_are_refused_at_validation(name, arguments, message):
    with pytest.raises(ExpressionError) as caught:
        signature(name, *arguments)
    assert message in str(caught.value)


def test_the_start_of_a_unit_rounds_up_to_itself():
    start, after = at("1970-01-01 00:00:00"), at("1970-01-01 00:00:01")
    for unit, following in (
        ("YEAR", "1971-01-01"),
        ("QUARTER", "1970-04-01"),
        ("MONTH", "1970-02-01"),
        ("DAY", "1970-01-02"),
    ):
        assert call("CEIL", start, unit) == start.value
        assert call("CEIL", after, unit) == dt.datetime.fromisoformat(following)
        assert call("CEIL", Column([start.value] * 2, T3), unit) == [start.value] * 2


def test_seconds_before_1970_are_rounded_down():
    assert call("EXTRACT", "EPOCH", Column([dt.datetime(1969, 12, 31, 23, 59, 59, 999014)], timestamp(6))) == [-1]


def test_out_of_range_is_an_error():
    with pytest.raises(DataError, match="TIMESTAMPDIFF"):
        call("TIMESTAMPDIFF", "MILLISECOND", at("1970-01-01 00:00:00"), MOMENT)
    with pytest.raises(DataError, match="TIMESTAMPADD"):
        call("TIMESTAMPADD", "WEEK", Column([2**62], BIGINT), MOMENT)
    with pytest.raises(DataError, match="24:00"):
        call("CEIL", clock_time("23:30:00"), "HOUR")


def test_result_types():
    assert signature("TIMESTAMPADD", "HOUR", 1, day("2024-01-01")).result == timestamp(6)
    assert signature("TIMESTAMPADD", "DAY", 1, day("2024-01-01")).result == DATE
    assert signature("TIMESTAMPDIFF", "DAY", MOMENT, MOMENT).result == INT
    assert signature("HOUR", MOMENT).result == BIGINT
    assert signature("CURRENT_TIMESTAMP").result == LTZ3
    assert signature("TO_TIMESTAMP", "x").result == T3


def test_current_time_is_that_of_the_bound_clock():
    with use_clock(ManualClock(1709287110640)):
        assert call("CURRENT_TIMESTAMP") == dt.datetime(2024, 3, 1, 9, 58, 30, 640000, tzinfo=dt.UTC)
        assert call("LOCALTIMESTAMP") == dt.datetime(2024, 3, 1, 9, 58, 30, 640000)
        assert call("CURRENT_DATE") == dt.date(2024, 3, 1)
        assert call("CURRENT_TIME") == dt.time(9, 58, 30)
        assert call("UNIX_TIMESTAMP") == 1709287110


@settings(deadline=None, derandomize=True)
@given(st.lists(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)), min_size=1, max_size=40))
def test_formatting_equals_pythons_and_parses_back(moments):
    column = pa.array(moments, pa.timestamp("us"))
    text = compile_pattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSS").format(column).to_pylist()
    assert text == [m.isoformat(timespec="microseconds") for m in moments]
    parsed = compile_pattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSS").parse(pa.array(text))
    assert parsed.to_pylist() == [v // 1000 for v in column.cast(pa.int64()).to_pylist()]
    words = compile_pattern("EEE d MMM yyyy h a").format(column).to_pylist()
    assert words == [f"{m:%a} {m.day} {m:%b} {m.year:04d} {(m.hour + 11) % 12 + 1} {m:%p}" for m in moments]


@settings(deadline=None, derandomize=True)
@given(st.dates(dt.date(1600, 1, 1), dt.date(2400, 1, 1)), st.integers(-4000, 4000))
def test_months_added_are_the_months_between(start, months):
    days = np.array([start], "M8[D]")
    moved = add_months(days, np.array([months]))
    ms = [v.astype("M8[ms]").astype(np.int64) for v in (days, moved)]
    between = int(months_between(*ms)[0])
    # the last day of a short month counts as reached only from a day that it has
    assert between == months or (months < 0 and between == months + 1)
