"""Date patterns of Java's `DateTimeFormatter` (and the common part of `SimpleDateFormat`): columns of times to text and back.

A pattern is compiled once into segments. Formatting first floors the column to the finest field that the pattern shows and formats each
distinct time only once; patterns of plain numbers are written as a matrix of digits, others as joined text columns. Parsing reads
text of one width as a matrix of digits too, and sends everything else through a regular expression, once per distinct text.

Letters: y u M L d D H h k K m s S a E e Q q n A X x Z z V, quoted text, `''`. Zone letters show UTC, the session's zone.
Source: the documentation of `java.time.format.DateTimeFormatter`, resolver style SMART (31 April reads as 30 April).
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record
from flowrun.errors import did_you_mean
from flowrun.functions.times.date_fields import Int64Array, TimeFields, month_lengths, ms_from_fields
from flowrun.functions.vectors import map_distinct, string_matrix, strings_from_matrix

MONTH_NAMES = [calendar.month_name[m] for m in range(1, 13)]
DAY_NAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_QUARTERS = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"]
_KNOWN = "yuMLdDHhkKmsSaEeQqnAXxZzV"
_RESERVED = "{}#[]"
_NS_PER_UNIT = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DAY_NS = 86_400_000_000_000
_LETTER_STEP_NS = {
    **dict.fromkeys("yuMLdDEeQqXxZzV", _DAY_NS),
    **dict.fromkeys("HkKha", 3_600_000_000_000),
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "A": 1_000_000,
    "n": 1,
}
_RANGES = {
    "M": (1, 12), "d": (1, 31), "D": (1, 366), "H": (0, 23), "h": (1, 12), "k": (1, 24), "K": (0, 11), "m": (0, 59), "s": (0, 59),
}  # fmt: skip
_ZONES = {
    "X": ("Z", "Z", "Z", "Z", "Z"),
    "x": ("+00", "+0000", "+00:00", "+0000", "+00:00"),
    "Z": ("+0000", "+0000", "+0000", "GMT", "Z"),
}

_OFFSETS = {
    "X": r"(Z|[+-]\d{2}(?:\d{2})?)", "XX": r"(Z|[+-]\d{4})", "XXXX": r"(Z|[+-]\d{4}(?:\d{2})?)",
    "x": r"([+-]\d{2}(?:\d{2})?)", "xx": r"([+-]\d{4})", "xxx": r"([+-]\d{2}:\d{2})", "xxxx": r"([+-]\d{4}(?:\d{2})?)",
    "xxxxx": r"([+-]\d{2}:\d{2}(?::\d{2})?)", "XXX": r"(Z|[+-]\d{2}:\d{2})",
    **dict.fromkeys(("Z", "ZZ", "ZZZ"), r"([+-]\d{4})"), "ZZZZ": r"(GMT(?:[+-]\d{1,2}(?::\d{2}(?::\d{2})?)?)?)",
}  # fmt: skip
"""What a pattern's letters read as an offset; what is not here reads Z, +01:00 or +01:00:00."""

_DIGITS = {width: np.array([list(f"{n:0{width}d}".encode()) for n in range(10**width)], np.uint8) for width in (2, 3)}


class PatternError(ValueError):
    """The pattern is not one of `DateTimeFormatter`, or uses a letter that is not supported."""


@record
class Segment:
    """A run of one pattern letter, or literal text (`letter` is empty)."""

    letter: str
    count: int = 0
    text: str = ""

    @property
    def digits(self) -> int | None:
        """Width in digits if the segment is always that many digits, for years 0 to 9999; else None."""
        if self.letter == "S" or (self.letter in "yu" and self.count in (2, 4)):
            return self.count
        if self.letter in "dHhkKms" and self.count == 2:
            return 2
        if self.letter in "MLQqe" and self.count == 2:
            return 2
        return 3 if self.letter == "D" and self.count == 3 else None

    @property
    def step_ns(self) -> int:
        """The shortest time that changes the segment's text."""
        return int(10 ** max(9 - self.count, 0)) if self.letter == "S" else _LETTER_STEP_NS[self.letter]


@record
class DatePattern:
    """A compiled pattern; immutable and thread-safe."""

    pattern: str
    segments: tuple[Segment, ...]

    def format(self, column: pa.Array) -> pa.StringArray:
        """The text of each time of a zone-less timestamp column; NULL stays NULL."""
        unit_ns = _NS_PER_UNIT[column.type.unit]
        step = min((s.step_ns for s in self.segments if s.letter), default=_DAY_NS)
        ticks = pc.cast(column, pa.int64())
        if step > unit_ns:
            coarse = np.floor_divide(pc.fill_null(ticks, 0).to_numpy(), step // unit_ns)
            ticks = pa.array(
                coarse, mask=pc.is_null(ticks).to_numpy(zero_copy_only=False) if ticks.null_count else None
            )
        else:
            step = unit_ns
        encoded = pc.dictionary_encode(ticks)
        distinct = encoded.dictionary
        text = self._text(TimeFields.of(distinct.to_numpy(), step))
        return text if len(distinct) == len(column) else text.take(encoded.indices)

    def _text(self, fields: TimeFields) -> pa.StringArray:
        if not fields.rows:
            return pa.array([], pa.string())
        plain = all(s.digits is not None or (not s.letter and s.text.isascii()) for s in self.segments)
        if plain and fields.years_have_four_digits:
            return strings_from_matrix(np.hstack([_digit_matrix(s, fields) for s in self.segments]))
        columns = [_segment_text(s, fields) for s in self.segments]
        joined: pa.StringArray = pc.binary_join_element_wise(*columns, "")
        return joined if isinstance(joined, pa.Array) else pa.repeat(joined, fields.rows)

    def parse(self, column: pa.StringArray) -> pa.Int64Array:
        """Milliseconds since the epoch (UTC) of each text; NULL for text that does not fit the pattern."""
        fields = self._matrix_fields(column)
        if fields is None:
            return map_distinct(self.parse_text, [column], len(column), pa.int64())
        return pa.array(ms_from_fields(fields))

    def exact_ms(self, column: pa.StringArray) -> Int64Array | None:
        """Milliseconds since the epoch of text of the pattern's width, all of it days that there are; None if some is not."""
        fields = self._matrix_fields(column)
        if fields is None:
            return None
        if "d" in fields:
            late = fields["d"] > 28
            months = fields["M"][late] if "M" in fields else np.ones(late.sum(), np.int64)
            if (fields["d"][late] > month_lengths(fields["y"][late], months)).any():
                return None
        return ms_from_fields(fields)

    def _matrix_fields(self, column: pa.StringArray) -> dict[str, Int64Array] | None:
        """The numbers of text of one width; None if a text has another width or a value needs the slower, exact look."""
        wanted = [s.digits if s.letter else len(s.text.encode()) for s in self.segments]
        if any(w is None for w in wanted) or not {s.letter for s in self.segments if s.letter} <= set("yuMdHmsS"):
            return None
        matrix = string_matrix(column, sum(w for w in wanted if w is not None))
        if matrix is None:
            return None
        found: dict[str, Any] = {}
        at = 0
        for segment, width in zip(self.segments, wanted, strict=True):
            part = matrix[:, at : at + (width or 0)]
            at += width or 0
            if not segment.letter:
                if not (part == np.frombuffer(segment.text.encode(), np.uint8)).all():
                    return None
                continue
            digits = part - np.uint8(48)
            if (digits > 9).any() or segment.letter in found or (segment.letter in "yu" and segment.count == 2):
                return None
            value = np.zeros(len(column), np.int64)
            for place in range(width or 0):
                value = value * 10 + digits[:, place]
            if segment.letter == "S":
                value = value * 1000 // 10**segment.count
            elif segment.letter in _RANGES:
                low, high = _RANGES[segment.letter]
                if ((value < low) | (value > high)).any():
                    return None
            found["y" if segment.letter == "u" else segment.letter] = value
        if "y" not in found or ((found["y"] < 1).any()):
            return None
        return found

    def parse_text(self, text: str) -> int | None:
        """Milliseconds since the epoch (UTC) of one text, or None."""
        match = _parser(self.segments).fullmatch(text)
        return None if match is None else _resolve(self.segments, match)


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> DatePattern:
    """A compiled date pattern. Cached; thread-safe.

    Raises:
        PatternError: says what is wrong and where.

    >>> times = pa.array([1709287110640], pa.timestamp("ms"))
    >>> compile_pattern("EEE d MMM yyyy, HH:mm:ss.SSS").format(times)[0].as_py()
    'Fri 1 Mar 2024, 09:58:30.640'
    >>> compile_pattern("dd/MM/yyyy").parse(pa.array(["01/03/2024", "x"])).to_pylist()
    [1709251200000, None]
    """
    return DatePattern(pattern, segments_of(pattern, _segment, _RESERVED))


def segments_of(pattern: str, letters: Callable[[str, str, int], Segment], reserved: str = "") -> tuple[Segment, ...]:
    """The runs of letters, each what `letters` makes of pattern, letter and count, and the texts between them.

    Raises:
        PatternError: an open quote, a character of `reserved` outside of quotes, or what `letters` says.
    """
    segments: list[Segment] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "'":
            end = at + 1
            text = ""
            while True:
                end = pattern.find("'", end)
                if end < 0:
                    raise PatternError(f"date pattern '{pattern}': the quote at position {at + 1} is not closed")
                if pattern[end + 1 : end + 2] != "'":
                    break
                end += 2
            text = pattern[at + 1 : end].replace("''", "'") if end > at + 1 else "'"
            segments.append(Segment("", text=text))
            at = end + 1
            continue
        if character in reserved:
            raise PatternError(f"date pattern '{pattern}': '{character}' is reserved; quote it as '{character}'")
        run = len(pattern[at:]) - len(pattern[at:].lstrip(character))
        if character.isascii() and character.isalpha():
            segments.append(letters(pattern, character, run))
        else:
            segments.append(Segment("", text=character * run))
        at += run
    return tuple(segments)


def _segment(pattern: str, letter: str, count: int) -> Segment:
    if letter not in _KNOWN:
        hint = did_you_mean(letter, _KNOWN.replace("", " ").split())
        suggestion = {"Y": "; did you mean y?", "W": "", "w": ""}.get(
            letter, f"; {hint}" if hint and len(hint) < 40 else ""
        )
        raise PatternError(f"date pattern '{pattern}': letter '{letter}' is not supported{suggestion}")
    most = {"S": 9, "n": 9, "A": 9, "y": 9, "u": 9, "D": 3, "a": 1, "X": 5, "x": 5, "Z": 5, "z": 4, "V": 2, "E": 4}
    if count > most.get(letter, 4 if letter in "MLQqe" else 2):
        raise PatternError(f"date pattern '{pattern}': too many '{letter}'")
    return Segment(letter, count)


def pattern_problem(pattern: object) -> str | None:
    """What is wrong with a constant pattern, or None; the check of date pattern parameters.

    >>> pattern_problem("yyyy-MM-dd"), pattern_problem("YYYY")
    (None, "date pattern 'YYYY': letter 'Y' is not supported; did you mean y?")
    """
    if pattern is None:
        return None
    try:
        compile_pattern(str(pattern))
    except PatternError as error:
        return str(error)
    return None


def _digit_matrix(segment: Segment, fields: TimeFields) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not segment.letter:
        return np.broadcast_to(np.frombuffer(segment.text.encode(), np.uint8), (fields.rows, len(segment.text)))
    width = segment.digits or 0
    value = fields.number(segment.letter, segment.count)
    if width in (2, 3):
        return _DIGITS[width][value]
    if width == 4:
        return np.hstack([_DIGITS[2][value // 100], _DIGITS[2][value % 100]])
    matrix = np.empty((fields.rows, width), np.uint8)
    for place in range(width - 1, -1, -1):
        matrix[:, place] = value % 10 + 48
        value = value // 10
    return matrix


def _segment_text(segment: Segment, fields: TimeFields) -> pa.Array | pa.Scalar:
    letter, count = segment.letter, segment.count
    if not letter:
        return pa.scalar(segment.text)
    if letter in _ZONES:
        return pa.scalar(_ZONES[letter][count - 1])
    if letter in "zV":
        return pa.scalar("Coordinated Universal Time" if letter == "z" and count == 4 else "UTC")
    names = _names(letter, count)
    number = fields.number(letter, count)
    if names is not None:
        return pa.array(names, pa.string()).take(pa.array(number - (0 if letter == "a" else 1)))
    if letter in "yu" and count == 4:
        return pa.array([_year(v) for v in number.tolist()], pa.string())
    text = pa.array(number).cast(pa.string())
    return pc.utf8_zero_fill(text, count) if count > 1 else text


def _year(year: int) -> str:
    return f"+{year}" if year > 9999 else f"-{-year:04d}" if year < 0 else f"{year:04d}"


def _names(letter: str, count: int) -> list[str] | None:
    match letter:
        case "a":
            return ["AM", "PM"]
        case "M" | "L" if count >= 3:
            return MONTH_NAMES if count == 4 else [m[:3] for m in MONTH_NAMES]
        case "E":
            return DAY_NAMES if count == 4 else [d[:3] for d in DAY_NAMES]
        case "e" if count >= 3:
            return DAY_NAMES[-1:] + DAY_NAMES[:-1] if count == 4 else [d[:3] for d in DAY_NAMES[-1:] + DAY_NAMES[:-1]]
        case "Q" | "q" if count >= 3:
            return _QUARTERS if count == 4 else [f"Q{n}" for n in range(1, 5)]
    return None


@lru_cache(maxsize=512)
def _parser(segments: tuple[Segment, ...]) -> re.Pattern[str]:
    """A regular expression with one group for each letter segment."""
    pieces: list[str] = []
    for place, segment in enumerate(segments):
        if not segment.letter:
            pieces.append(re.escape(segment.text))
            continue
        names = _names(segment.letter, segment.count)
        adjacent = place + 1 < len(segments) and bool(segments[place + 1].letter)
        if names is not None:
            pieces.append("(" + "|".join(map(re.escape, names)) + ")")
        elif segment.letter in "XxZ":
            pieces.append(_OFFSETS.get(segment.letter * segment.count, r"(Z|[+-]\d{2}:\d{2}(?::\d{2})?)"))
        elif segment.letter in "zV":
            pieces.append(r"([\w/+:-]+)")
        elif segment.letter in "yu" and segment.count != 2:
            pieces.append(
                rf"(\d{{{segment.count}}})"
                if adjacent
                else rf"(\d{{{segment.count},9}})"
                if segment.count != 4
                else r"(\d{4})"
            )
        elif segment.letter == "S" or segment.count > 1:
            pieces.append(rf"(\d{{{segment.count}}})")
        else:
            pieces.append(
                r"(\d{1,19})" if segment.letter in "nA" else r"(\d{1,3})" if segment.letter == "D" else r"(\d{1,2})"
            )
    return re.compile("".join(pieces), re.ASCII)


def _resolve(segments: tuple[Segment, ...], match: re.Match[str]) -> int | None:
    found: dict[str, int] = {}
    offset_minutes = 0
    for segment, text in zip((s for s in segments if s.letter), match.groups(), strict=True):
        names = _names(segment.letter, segment.count)
        letter = {"u": "y", "L": "M", "q": "Q"}.get(segment.letter, segment.letter)
        if names is not None:
            number = names.index(text) + (0 if letter == "a" else 1)
        elif letter in "XxZ":
            offset_minutes = _offset_minutes(text)
            continue
        elif letter in "zV":
            if text not in ("UTC", "GMT", "Z"):
                return None
            continue
        else:
            number = int(text)
            if letter == "S":
                number = number * 1000 // 10**segment.count
            elif letter == "y" and segment.count == 2:
                number += 2000
        low, high = (0, 24) if letter == "H" else _RANGES.get(letter, (0, 10**18))
        if not low <= number <= high or found.setdefault(letter, number) != number:
            return None
    if found.get("H") == 24 and any(found.get(letter) for letter in "msSnA"):
        return None
    if "y" not in found:
        found = {"y": 1970, **{letter: number for letter, number in found.items() if letter != "D"}}
        if found.get("d", 1) > month_lengths(np.array([1970]), np.array([found.get("M", 1)]))[0]:
            return None
    if "D" in found:
        found = {**found, "M": 1, "d": 1}
    fields = {k: np.array([v]) for k, v in _clock(found).items()}
    if "D" in found and found["D"] > 365 + (month_lengths(fields["y"], np.array([2]))[0] == 29):
        return None
    days = found["D"] - 1 if "D" in found else 0
    return int(ms_from_fields(fields)[0]) + days * 86_400_000 - offset_minutes * 60_000


def _clock(found: dict[str, int]) -> dict[str, int]:
    """The fields with an hour of the day in place of k, K, h and a."""
    fields = dict(found)
    half = fields.get("a", 0) * 12
    if "n" in fields:
        fields["S"] = fields["n"] // 1_000_000
    if "k" in fields:
        fields["H"] = fields["k"] % 24
    elif "h" in fields:
        fields["H"] = fields["h"] % 12 + half
    elif "K" in fields:
        fields["H"] = fields["K"] + half
    return fields


def _offset_minutes(text: str) -> int:
    if text == "Z":
        return 0
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if text[0] == "-" else minutes
