"""What Flink's CAST, TO_DATE and TO_TIMESTAMP read as a date, a time of day or a timestamp: one text at a time, or plain columns.

Source: `org.apache.flink.table.utils.DateTimeUtils` of Flink 2.3, and what it answered.
"""

from __future__ import annotations

import calendar
import re
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.functions.vectors import directly, text_bytes

SPACES = "".join(map(chr, range(33)))
"""What Java's `String.trim` takes away."""
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000
_YEAR_1_S = -62_135_596_800
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_WHOLE = re.compile(r"0*([0-9]{1,10})")
_DIGITS = re.compile(r"[0-9]*")
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?: ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{0,9}))?)?"
)
_LENIENT = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?: ([+-]?[0-9]{1,10}):([+-]?[0-9]{1,10}):([+-]?[0-9]{1,10})(?:\.([0-9]{1,9}))?)?"
)


def date_days(text: str) -> int | None:
    """Days since the epoch of `y[-M[-d]]` before a space, or None; spaces around the numbers do not count.

    >>> date_days("2024-2-29 x"), date_days("24"), date_days("2023-02-29"), date_days("2024-02-29T00:00")
    (19782, -710762, None, None)
    """
    space = text.find(" ")
    parts = (text[:space] if space > 0 else text).split("-", 2)
    numbers = [_number(p) for p in parts]
    year, month, day = (*numbers, 1, 1)[:3]
    if year is None or month is None or day is None or year > 9999 or not 1 <= month <= 12:
        return None
    return _days(year, month, day) if 1 <= day <= _month_length(year, month) else None


def time_ns(text: str) -> int | None:
    """Nanoseconds since midnight of `H[:m[:s[.f]]]`, or None; spaces around the numbers do not count.

    >>> time_ns("7"), time_ns("10:20:30.5"), time_ns("24:00")
    (25200000000000, 37230500000000, None)
    """
    hour, minute, rest = (*text.split(":", 2), "0", "0")[:3]
    second, _, fraction = rest.partition(".")
    numbers = [_number(p) for p in (hour, minute, second)]
    if None in numbers or not _DIGITS.fullmatch(fraction.strip(SPACES)):
        return None
    hours, minutes, seconds = (n or 0 for n in numbers)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + int(fraction.strip(SPACES)[:9].ljust(9, "0"))


def timestamp_ns(text: str) -> int | None:
    """Nanoseconds since the epoch of `yyyy-M-d[ H:m:s[.f]]`, or None.

    24:00:00 is the next day's midnight. A day up to 31 that the month lacks is the month's last one.

    >>> timestamp_ns("2024-02-30 24:00:00") == timestamp_ns("2024-3-1"), timestamp_ns("2024-03-01T00:00:00")
    (True, None)
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(g or 0) for g in match.groups()[:6])
    nanos = int((match[7] or "").ljust(9, "0"))
    whole = hour == 24 and not (minute or second or nanos)
    if not (year and 1 <= month <= 12 and 1 <= day <= 31 and (hour < 24 or whole) and minute < 60 and second < 60):
        return None
    days = _days(year, month, min(day, _month_length(year, month)))
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000 + nanos


def lenient_ms(text: str) -> int | None:
    """Milliseconds since the epoch of `yyyy-M-d[ H:m:s[.f]]`, or None; what is beyond its range carries over.

    What TO_TIMESTAMP reads where the text does not fit its pattern.

    >>> lenient_ms(" 2024-03-01 09:58:30.64 "), lenient_ms("2024-2-30") == lenient_ms("2024-03-01"), lenient_ms("2024")
    (1709287110640, True, None)
    """
    match = _LENIENT.fullmatch(text.strip(SPACES))
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(g or 0) for g in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and max(map(abs, (hour, minute, second))) < 2**31):
        return None
    milli = int((match[7] or "")[:3].ljust(3, "0"))
    return _days(year, month, day) * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + milli


def plain_timestamps(text: pa.Array, unit: str) -> pa.Array | None:
    """Arrow's own parse of a column of dates, or of dates and times with seconds and a space; None if some text is something else."""
    lengths = pc.binary_length(text)
    shortest, longest = pc.min(lengths).as_py(), pc.max(lengths).as_py()
    if shortest is None:
        return pa.nulls(len(text), pa.timestamp(unit))
    # Arrow also reads what has a T, and what has no minutes or no seconds
    if (shortest < 19 and (shortest, longest) != (10, 10)) or text_bytes(text).max() > ord(":"):
        return None
    values = directly(text, pa.timestamp(unit))
    known = values is not None and pc.min(values.view(pa.int64())).as_py() >= _YEAR_1_S * _PER_SECOND[unit]
    return values if known else None


def _number(text: str) -> int | None:
    match = _WHOLE.fullmatch(text.strip(SPACES))
    return None if match is None else int(match[1])


def _month_length(year: int, month: int) -> int:
    return calendar.monthrange(2000 + year % 400, month)[1]


def _days(year: int, month: int, day: int) -> int:
    cycles, within = divmod(year - 2000, 400)  # years that Python's dates do not have
    return date(2000 + within, month, 1).toordinal() - _EPOCH + cycles * 146_097 + day - 1
