"""Times read by the patterns of Java's `SimpleDateFormat`, which Flink uses in UNIX_TIMESTAMP, TO_DATE with a pattern, CONVERT_TZ and
DATE_FORMAT of a text.

It reads from the left and ignores what follows the pattern. A number may have more or fewer digits than letters, a sign, and spaces and
tabs before it; only where two numbers touch does the count of letters say where the first one ends. A field beyond its range carries
over: the 45th of January is the 14th of February. Days before 15 October 1582 are those of the Julian calendar.

Letters: y M L d D u E a H k K h m s S z Z X, quoted text, `''`. Of zone names only UTC and GMT are known; offsets are.
Source: the documentation of `java.text.SimpleDateFormat` and `java.util.GregorianCalendar` (lenient, English, zone UTC).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record
from flowrun.functions.times.cast_forms import plain_timestamps
from flowrun.functions.times.current_time import current_ms
from flowrun.functions.times.date_fields import Int64Array
from flowrun.functions.times.date_format import DAY_NAMES, MONTH_NAMES, DatePattern, PatternError, Segment, segments_of
from flowrun.functions.vectors import map_distinct

GREGORIAN_START_MS = -12_219_292_800_000
"""15 October 1582, the first day of the Gregorian calendar, in ms since the epoch."""
_PLAIN = ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd")
_DAY_MS = 86_400_000
_EPOCH_JULIAN = 719_470
"""Days from 1 March of the year 0 in the Julian calendar to the epoch."""
_LETTERS = "yMLdDuEaHkKhmsSzZX"
_NUMBER = re.compile(r"(-?\d+)(?:E(-?\d+))?")
_OFFSET = {
    "Z": re.compile(r"([+-])(\d{2})(\d{2})"),
    "X": re.compile(r"([+-])(\d{2})()"),
    "XX": re.compile(r"([+-])(\d{2})(\d{2})"),
    "XXX": re.compile(r"([+-])(\d{2}):(\d{2})"),
    "GMT": re.compile(r"([+-])(\d{1,2}):(\d{2})"),
}
_ZONE_NAMES = re.compile(r"UTC|GMT|Coordinated Universal Time|Greenwich Mean Time", re.IGNORECASE)

Read = Callable[[str, int, dict[str, int]], int]
"""(text, where to start, the fields so far in the order of their setting) → where the field ends, or -1 if there is none."""


@record
class SimpleFormat:
    """A compiled pattern; immutable and thread-safe."""

    pattern: str
    segments: tuple[Segment, ...]
    reads: tuple[Read, ...]

    def parse(self, column: pa.StringArray) -> pa.Int64Array:
        """Milliseconds since the epoch (UTC) of each text; NULL for text that does not fit the pattern."""
        fast = self._parse_fixed(column)
        return map_distinct(self.parse_text, [column], len(column), pa.int64()) if fast is None else fast

    def _parse_fixed(self, column: pa.StringArray) -> pa.Int64Array | None:
        """All texts, if each begins with numbers of just as many digits as the pattern has letters and nothing carries over."""
        letters = [s.letter for s in self.segments if s.letter]
        fixed = all(s.digits is not None if s.letter else s.text.isascii() for s in self.segments)
        if not fixed or not letters or len(set(letters)) < len(letters) or not set(letters) <= set("yMdHmsS"):
            return None
        if any((s.letter == "y" and s.count != 4) or (s.letter == "S" and s.count != 3) for s in self.segments):
            return None
        width = sum(s.digits or len(s.text) for s in self.segments)
        lengths = pc.binary_length(column)
        shortest, longest = pc.min(lengths).as_py(), pc.max(lengths).as_py()
        if shortest is None or shortest < width:
            return None
        if longest > width:
            if (
                self.segments[-1].letter
                and pc.any(pc.match_substring_regex(column, rf"^.{{{width}}}[^\x00-/:-DF-\x7f]")).as_py()
            ):
                return None
            column = pc.utf8_slice_codeunits(column, 0, width)
        if self.pattern in _PLAIN and (plain := plain_timestamps(column, "ms")) is not None:
            known = pc.min(plain.view(pa.int64())).as_py() >= GREGORIAN_START_MS
            return plain.view(pa.int64()) if known else None
        ms = DatePattern(self.pattern, self.segments).exact_ms(column)
        return None if ms is None or int(ms.min()) < GREGORIAN_START_MS + 366 * _DAY_MS else pa.array(ms)

    def parse_text(self, text: str) -> int | None:
        """Milliseconds since the epoch (UTC) of one text, or None."""
        fields: dict[str, int] = {}
        at = 0
        for read in self.reads:
            at = read(text, at, fields)
            if at < 0:
                return None
        ms = _resolve(fields)
        if "century" in fields and ms < _century_start() * _DAY_MS:
            ms = _resolve({**fields, "y": fields["y"] + 100})
        return ms


@lru_cache(maxsize=512)
def compile_simple(pattern: str) -> SimpleFormat:
    """A compiled pattern to read times by. Cached; thread-safe.

    Raises:
        PatternError: says what is wrong and where.

    >>> read = compile_simple("yyyy-MM-dd").parse_text
    >>> read("2024-02-29 10:00:00"), read("2024-2-30"), read("2024")
    (1709164800000, 1709251200000, None)
    """
    segments = segments_of(pattern, _checked)
    reads = tuple(map(_reader, segments, (*segments[1:], None)))
    return SimpleFormat(pattern, segments, reads)


def simple_problem(pattern: object) -> str | None:
    """What is wrong with a constant pattern to read times by, or None; the check of its parameter.

    >>> simple_problem("yyyy-MM-dd"), simple_problem("yyyy-QQ")
    (None, "date pattern 'yyyy-QQ': times cannot be read by the letter 'Q'")
    """
    if pattern is None:
        return None
    try:
        compile_simple(str(pattern))
    except PatternError as error:
        return str(error)
    return None


def _checked(pattern: str, letter: str, count: int) -> Segment:
    if letter not in _LETTERS:
        hint = "; did you mean y?" if letter == "Y" else ""
        raise PatternError(f"date pattern '{pattern}': times cannot be read by the letter '{letter}'{hint}")
    if letter == "X" and count > 3:
        raise PatternError(f"date pattern '{pattern}': too many 'X'")
    return Segment(letter, count)


# -- one field -----------------------------------------------------------------------------------------------------------------


def _reader(segment: Segment, following: Segment | None) -> Read:
    letter, count = segment.letter, segment.count
    if not letter:
        return _literal(segment.text)
    if letter in "ML" and count > 2:
        return _names("M", {n: i for i, n in enumerate(MONTH_NAMES)})
    if letter == "E":
        return _names("E", {n: i + 1 for i, n in enumerate(DAY_NAMES)})
    if letter == "a":
        return _names("a", {"AM": 0, "PM": 1}, short=2)
    if letter in "zZX":
        return _zone(letter, count)
    touches = following is not None and following.letter != "" and _is_number(following)
    return _number(letter, count, count if touches else None)


def _is_number(segment: Segment) -> bool:
    return segment.letter not in "EazZX" and (segment.letter not in "ML" or segment.count <= 2)


def _literal(text: str) -> Read:
    return lambda given, at, _fields: at + len(text) if given.startswith(text, at) else -1


def _begin(text: str, at: int) -> int:
    """Behind the spaces and tabs from `at` on; -1 at the end of the text."""
    while at < len(text) and text[at] in " \t":
        at += 1
    return at if at < len(text) else -1


def _number(letter: str, count: int, width: int | None) -> Read:
    """Reads a number; of at most `width` characters with the spaces before it, which must be there, if it touches another."""

    def read(text: str, at: int, fields: dict[str, int]) -> int:
        start = _begin(text, at)
        end = len(text) if width is None else at + width
        if start < 0 or end > len(text):
            return -1
        match = _NUMBER.match(text, start, end)
        if match is None:
            return -1
        value = _as_int(match)
        if letter == "y" and count <= 2 and match.end() - start == 2 and text[start] != "-":
            value = _full_year(value, fields)
        _set(fields, letter, value)
        return match.end()

    return read


def _as_int(match: re.Match[str]) -> int:
    """The number as Java's `Number.intValue` of a long or, beyond, a double."""
    value = int(match[1].lstrip("-").lstrip("0")[:400] or "0")  # Python reads no number of thousands of digits
    if match[2]:
        exponent = min(int(match[2][:6]), 400)
        value = value * 10**exponent if exponent >= 0 else value // 10 ** min(-exponent, 400)
    value = -value if match[1].startswith("-") else value
    if -(2**63) <= value < 2**63:
        return (value + 2**31) % 2**32 - 2**31
    return 2**31 - 1 if value > 0 else -(2**31)


def _full_year(value: int, fields: dict[str, int]) -> int:
    """A year of two digits in the hundred years that began 80 years ago."""
    first = _today().year - 80
    if value == first % 100:
        fields["century"] = 1  # the rest of the date decides
    return first - first % 100 + value + (100 if value < first % 100 else 0)


def _today() -> datetime:
    return datetime.fromtimestamp(current_ms() / 1000, UTC)


def _century_start() -> int:
    """The day of 80 years ago, in days since the epoch."""
    today = _today()
    return _days(today.year - 80, today.month - 1, today.day)


_FIELDS = {"L": ("M", -1), "M": ("M", -1), "k": ("H", 0), "u": ("E", 0)}


def _set(fields: dict[str, int], letter: str, value: int) -> None:
    """Sets a field as the newest: where several could say the day or the hour, the newest does."""
    name, shift = _FIELDS.get(letter, (letter, 0))
    if (letter == "k" and value == 24) or (letter == "h" and value == 12):
        value = 0
    name = {"h": "K"}.get(name, name)
    fields.pop(name, None)
    fields[name] = value + shift


def _names(field: str, values: dict[str, int], short: int = 3) -> Read:
    """Reads a name, in any case, long or short."""
    known = {form.lower(): value for name, value in values.items() for form in (name[:short], name)}
    pattern = re.compile("|".join(sorted(map(re.escape, known), key=len, reverse=True)), re.IGNORECASE | re.ASCII)

    def read(text: str, at: int, fields: dict[str, int]) -> int:
        match = pattern.match(text, at) if _begin(text, at) >= 0 else None
        if match is None:
            return -1
        fields.pop(field, None)
        fields[field] = known[match[0].lower()]
        return match.end()

    return read


def _zone(letter: str, count: int) -> Read:
    """Reads an offset, UTC or GMT."""

    def read(text: str, at: int, fields: dict[str, int]) -> int:
        start = _begin(text, at)
        if start < 0:
            return -1
        form = "X" * count if letter == "X" else "Z"
        if letter == "X" and text[start] == "Z":
            fields["offset"] = 0
            return start + 1
        if letter != "X" and text[at : at + 3].upper() == "GMT":
            start, form = at + 3, "GMT"
            if text[start : start + 1] not in ("+", "-"):
                fields["offset"] = 0
                return start
        elif letter != "X" and (named := _ZONE_NAMES.match(text, start)) is not None:
            fields["offset"] = 0
            return named.end()
        match = _OFFSET[form].match(text, start)
        if match is None or int(match[2]) > 23 or int(match[3] or 0) > 59:
            return -1
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        fields["offset"] = -minutes if match[1] == "-" else minutes
        return match.end()

    return read


# -- all fields ----------------------------------------------------------------------------------------------------------------


def _resolve(fields: dict[str, int]) -> int:
    order = {name: place for place, name in enumerate(fields)}
    ms = _day(fields, order) * _DAY_MS
    half = max(order["K"], order["a"]) if "K" in order and "a" in order else -1
    if "H" in order and order["H"] > half:
        ms += fields["H"] * 3_600_000
    else:
        ms += (fields.get("K", 0) + 12 * fields.get("a", 0)) * 3_600_000
    ms += fields.get("m", 0) * 60_000 + fields.get("s", 0) * 1_000 + fields.get("S", 0)
    ms -= fields.get("offset", 0) * 60_000
    return (ms + 2**63) % 2**64 - 2**63  # a long


def _day(fields: dict[str, int], order: dict[str, int]) -> int:
    """Days since the epoch."""
    year, month = fields.get("y", 1970), fields.get("M", 0)
    if "D" in order and order["D"] > order.get("d", -1):
        return _days(year, 0, fields["D"])
    if "d" in order or "E" not in order:
        return _days(year, month, fields.get("d", 1))
    first = _days(year, month, 1)  # the first such day of the week in the month
    return first + (fields["E"] - 1 - (first + 3)) % 7


def _days(year: int, month: int, day: int) -> int:
    """Days since the epoch of a day, counted from 1, of a month, counted from 0; both may lie beyond their ranges."""
    year, month = year + month // 12, month % 12
    # years begin with March: then the day that some have more is their last one
    years, months = (year - 1, month + 10) if month < 2 else (year, month - 2)
    julian = 365 * years + years // 4 + (153 * months + 2) // 5 + day - 1 - _EPOCH_JULIAN
    gregorian = julian + 2 - years // 100 + years // 400
    return gregorian if gregorian * _DAY_MS >= GREGORIAN_START_MS else julian


def as_shown(ms: Int64Array) -> Int64Array:
    """Times whose proleptic Gregorian fields are those that Java's calendar, Julian before 15 October 1582, has of `ms`.

    >>> int(as_shown(np.array([compile_simple("yyyy-MM-dd").parse_text("1500-03-01")]))[0]) // 86_400_000
    -171605
    """
    if not len(ms) or int(ms.min()) >= GREGORIAN_START_MS:
        return ms
    years = (4 * (ms // _DAY_MS + _EPOCH_JULIAN) + 3) // 1461
    return np.where(ms < GREGORIAN_START_MS, ms + (2 - years // 100 + years // 400) * _DAY_MS, ms)
