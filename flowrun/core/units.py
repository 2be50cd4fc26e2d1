"""Durations, memory sizes and points in time as users write them: `10s`, `1 min`, `64mb`, `2024-03-01T10:00`."""

from __future__ import annotations

import datetime
import re

_DURATION_MS = {
    1: ("ms", "milli", "millis", "millisecond", "milliseconds"),
    1_000: ("s", "sec", "secs", "second", "seconds"),
    60_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000: ("h", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
}
_MEMORY_BYTES = {
    1: ("", "b", "bytes"),
    1 << 10: ("k", "kb", "kib"),
    1 << 20: ("m", "mb", "mib"),
    1 << 30: ("g", "gb", "gib"),
}
_UNIT_MS = {unit: ms for ms, units in _DURATION_MS.items() for unit in units}
_UNIT_BYTES = {unit: size for size, units in _MEMORY_BYTES.items() for unit in units}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_duration_ms(text: str) -> int:
    """A duration in ms; several parts add up. A bare 0 needs no unit.

    Raises:
        ValueError: not a duration; says the forms that are.

    >>> parse_duration_ms("1m 30s"), parse_duration_ms("250 ms"), parse_duration_ms("0")
    (90000, 250, 0)
    """
    stripped = text.strip()
    if stripped == "0":
        return 0
    total, position = 0.0, 0
    while position < len(stripped):
        match = _AMOUNT.match(stripped, position)
        if match is None or match[2].lower() not in _UNIT_MS:
            raise ValueError("write a number and a unit, like 500ms, 10s, 1m, 2h or 1d")
        total += float(match[1]) * _UNIT_MS[match[2].lower()]
        position = match.end()
    if total >= 1 << 63:
        raise ValueError("a duration is less than 292 million years")
    if position == 0:
        raise ValueError("write a number and a unit, like 500ms, 10s, 1m, 2h or 1d")
    return round(total)


def flink_duration_ms(text: str) -> int:
    """A duration as Apache Flink's options have it: a number without a unit is milliseconds.

    Raises:
        ValueError: not a duration; says the forms that are.

    >>> flink_duration_ms("1500"), flink_duration_ms("2 min")
    (1500, 120000)
    """
    stripped = text.strip()
    return parse_duration_ms(f"{stripped}ms" if stripped.isdecimal() else stripped)


def format_duration(ms: int) -> str:
    """The shortest exact spelling of a duration.

    >>> format_duration(60000), format_duration(90000), format_duration(0)
    ('1m', '90s', '0ms')
    """
    for unit, symbol in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")):
        if ms and ms % unit == 0:
            return f"{ms // unit}{symbol}"
    return f"{ms}ms"


def parse_memory_bytes(text: str) -> int:
    """A memory size in bytes; units are powers of 1024.

    Raises:
        ValueError: not a size; says the forms that are.

    >>> parse_memory_bytes("64 mb"), parse_memory_bytes("100")
    (67108864, 100)
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNIT_BYTES:
        raise ValueError("write a number and a unit, like 512kb, 64mb or 1gb")
    return round(float(match[1]) * _UNIT_BYTES[match[2].lower()])


def size_text(size: float) -> str:
    """A number of bytes as people read it, with at most four digits.

    >>> size_text(0), size_text(950), size_text(12_345), size_text(7_800_000)
    ('0 B', '950 B', '12.3 kB', '7.8 MB')
    """
    for unit, symbol in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {symbol}"
    return f"{size:.0f} B"


def parse_instant_ms(text: str) -> int:
    """A point in time in ms since the epoch: such a number, or an ISO 8601 date or time, in UTC unless it has an offset.

    Raises:
        ValueError: not a point in time; says the forms that are.

    >>> parse_instant_ms("2024-03-01 10:00:00"), parse_instant_ms("2024-03-01T10:00+01:00"), parse_instant_ms("5")
    (1709287200000, 1709283600000, 5)
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        return int(stripped)
    try:
        time = datetime.datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError("write a date and time like 2024-03-01T10:00:00Z, or milliseconds since 1970") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)


def interval_text(ms: int) -> str:
    """A duration as an interval of SQL, with the precision that Flink asks for.

    >>> interval_text(5_000), interval_text(300_000), interval_text(250_500)
    ("INTERVAL '5' SECOND", "INTERVAL '5' MINUTE", "INTERVAL '250.5' SECOND(3)")
    """
    for unit, size in (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000)):
        if ms and ms % size == 0:
            return _interval(str(ms // size), unit)
    return _interval(f"{ms / 1000:.3f}".rstrip("0").rstrip("."), "SECOND")


def _interval(value: str, unit: str) -> str:
    digits = len(value.partition(".")[0])
    return f"INTERVAL '{value}' {unit}" + (f"({digits})" if digits > 2 else "")
