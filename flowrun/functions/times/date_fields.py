"""Calendar and clock fields of whole columns of times, and times from fields; proleptic Gregorian calendar, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowrun.core.record import record

Int64Array = np.ndarray[Any, np.dtype[np.int64]]
_DAY_NS = 86_400_000_000_000


@record
class TimeFields:
    """Times split into days since the epoch and nanoseconds of the day."""

    days: Int64Array
    nanos: Int64Array

    @classmethod
    def of(cls, ticks: Int64Array, step_ns: int) -> TimeFields:
        """Fields of times given as a number of steps of `step_ns` (a divisor of a day) since the epoch."""
        per_day = _DAY_NS // step_ns
        days = np.floor_divide(ticks, per_day)
        return cls(days, (ticks - days * per_day) * step_ns)

    @property
    def rows(self) -> int:
        """Number of times."""
        return len(self.days)

    @property
    def years_have_four_digits(self) -> bool:
        """Whether all years are 0 to 9999."""
        return bool(self.days.min() >= -719_528 and self.days.max() <= 2_932_896)

    def number(self, letter: str, count: int) -> Int64Array:
        """The number that a letter of a date pattern shows, repeated `count` times (that matters for y and S)."""
        dates = self.days.astype("M8[D]")
        match letter:
            case "y" | "u":
                years = dates.astype("M8[Y]").astype(np.int64) + 1970
                return years % 100 if count == 2 else years
            case "M" | "L":
                return _int64(dates.astype("M8[M]")) % 12 + 1
            case "d":
                return _int64(dates - dates.astype("M8[M]").astype("M8[D]")) + 1
            case "D":
                return _int64(dates - dates.astype("M8[Y]").astype("M8[D]")) + 1
            case "Q" | "q":
                return _int64(dates.astype("M8[M]")) % 12 // 3 + 1
            case "E":
                return (self.days + 3) % 7 + 1  # 1970-01-01 was a Thursday; 1 is Monday
            case "e":
                return (self.days + 4) % 7 + 1  # 1 is Sunday, as in the US locale
            case "S":
                return self.nanos % 1_000_000_000 // int(10 ** (9 - count))
            case "n":
                return self.nanos % 1_000_000_000
            case "A":
                return self.nanos // 1_000_000
        return self._clock_number(letter)

    def _clock_number(self, letter: str) -> Int64Array:
        hours = self.nanos // 3_600_000_000_000
        match letter:
            case "H":
                return hours
            case "k":
                return (hours + 23) % 24 + 1
            case "K":
                return hours % 12
            case "h":
                return (hours + 11) % 12 + 1
            case "a":
                return hours // 12
            case "m":
                return self.nanos // 60_000_000_000 % 60
            case _:
                return self.nanos // 1_000_000_000 % 60


def _int64(times: Any) -> Int64Array:
    numbers: Int64Array = times.astype(np.int64)
    return numbers


def month_lengths(years: Int64Array, months: Int64Array) -> Int64Array:
    """Days of each month.

    >>> month_lengths(np.array([2023, 2024]), np.array([2, 2])).tolist()
    [28, 29]
    """
    start = ((years - 1970) * 12 + months - 1).astype("M8[M]")
    length: Int64Array = ((start + 1).astype("M8[D]") - start.astype("M8[D]")).astype(np.int64)
    return length


def ms_from_fields(fields: Mapping[str, Int64Array]) -> Int64Array:
    """Milliseconds since the epoch from year `y`, month `M`, day `d`, hour `H`, minute `m`, second `s`, milliseconds `S`.

    What is missing is the first of its kind. A day that the month lacks becomes the month's last day.

    >>> int(ms_from_fields({"y": np.array([2024]), "M": np.array([2]), "d": np.array([30])})[0])
    1709164800000
    """
    years = fields["y"]
    months = fields.get("M", np.ones_like(years))
    days = np.minimum(fields.get("d", np.ones_like(years)), month_lengths(years, months))
    start = ((years - 1970) * 12 + months - 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    ms: Int64Array = (start + days - 1) * 86_400_000
    for letter, factor in (("H", 3_600_000), ("m", 60_000), ("s", 1_000), ("S", 1), ("A", 1)):
        if letter in fields:
            ms = ms + fields[letter] * factor
    return ms
