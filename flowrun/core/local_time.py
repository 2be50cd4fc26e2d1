"""What clocks on the wall show: instants as local times of a zone and back, over changes of the zone's offset.

Local times are ms (or any other unit) since 1970 on the wall clock, as TIMESTAMP columns hold them; instants are since 1970 in UTC. Where
clocks are set forward, local times are skipped (a gap); where they are set back, they come twice (an overlap).
"""

from __future__ import annotations

import re
from functools import lru_cache
from zoneinfo import available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.record import record
from flowrun.errors import did_you_mean

UTC_ZONE = "UTC"
_UTC_NAMES = ("UTC", "Z", "GMT", "UT", "ETC/UTC", "DEFAULT")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_MS = pa.timestamp("ms")

Times = Integers


@lru_cache(maxsize=64)
def zone_id(name: str) -> str:
    """A time zone as it is called here: `UTC`, an offset (`+05:30`), or an id of the time zone database.

    Raises:
        ValueError: there is no such zone; the message says so, and what is near.

    >>> zone_id("GMT+2"), zone_id("UTC+00:00"), zone_id("Europe/Berlin")
    ('+02:00', 'UTC', 'Europe/Berlin')
    """
    name = name.strip()
    if name.upper() in _UTC_NAMES:
        return UTC_ZONE
    match = _OFFSET.fullmatch(name)
    if match is not None:
        hours, minutes = int(match[2]), int(match[3] or 0)
        if hours > 18 or minutes > 59 or (hours == 18 and minutes):
            raise ValueError(f"'{name}' is not a time zone; offsets go from -18:00 to +18:00")
        return UTC_ZONE if not hours and not minutes else f"{match[1]}{hours:02}:{minutes:02}"
    zones = available_timezones()
    if name not in zones:
        hint = did_you_mean(name, sorted(zones)) or "use an id like Europe/Berlin or an offset like GMT+02:00"
        raise ValueError(f"'{name}' is not a time zone; {hint}")
    return name


def local_times(instants: pa.Array | pa.Scalar, zone: str) -> pa.Array | pa.Scalar:
    """TIMESTAMP of TIMESTAMP_LTZ, of the same unit: what the zone's clocks show then.

    >>> str(local_times(pa.scalar(0, pa.timestamp("ms", "UTC")), "Asia/Kolkata"))
    '1970-01-01 05:30:00'
    """
    unit = instants.type.unit
    return pc.local_timestamp(instants.cast(pa.timestamp(unit, zone)))


def instants_of(local: pa.Array | pa.Scalar, zone: str) -> pa.Array | pa.Scalar:
    """TIMESTAMP_LTZ of TIMESTAMP, of the same unit, by the rules of Java's `LocalDateTime.atZone`, which are Flink's.

    Of a local time that comes twice it is the first instant; one that is skipped counts from the offset before the gap.
    """
    unit = local.type.unit
    found = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    # in a gap `found` is the instant before it; there, the local time moves on by what it is behind that instant's own
    behind = pc.subtract(local.cast(pa.int64()), pc.local_timestamp(found).cast(pa.int64()))
    return pc.add(found.cast(pa.int64()), behind).cast(pa.timestamp(unit, UTC_ZONE))


def last_instants(local: pa.Array | pa.Scalar, zone: str) -> pa.Array | pa.Scalar:
    """TIMESTAMP_LTZ of TIMESTAMP, of the same unit: the last instant at which the zone's clocks show that time or an earlier one.

    Of a local time that comes twice it is the second instant; of one that is skipped the instant before the gap.
    """
    unit = local.type.unit
    return pc.assume_timezone(local, zone, ambiguous="latest", nonexistent="earliest").cast(
        pa.timestamp(unit, UTC_ZONE)
    )


@record
class WallClock:
    """Event time as the clocks of a zone show it, ms: what windows by local days and hours go by."""

    zone: str

    def times(self, instants: Times) -> Times:
        """Local time of each instant."""
        local: Times = _integers(local_times(pa.array(instants).view(pa.timestamp("ms", UTC_ZONE)), self.zone))
        return local

    def last_instants(self, local: Times) -> Times:
        """See `last_instants`."""
        return _integers(last_instants(pa.array(local).view(_MS), self.zone))

    def reached(self, watermark: int) -> int:
        """The local time that is over when instants up to `watermark` are: no later instant has it, or one before it.

        >>> clock = WallClock("Europe/Berlin")
        >>> before = 1729987200000  # 2024-10-27T00:00:00Z, 02:00 there for the first time; clocks go back at 03:00
        >>> clock.reached(before + 1_800_000) == clock.reached(before) == clock.reached(before + 3_599_999)
        True
        >>> clock.reached(before + 3_600_000) - clock.reached(before)
        1
        """
        if watermark in (MIN_TIMESTAMP, MAX_TIMESTAMP):
            return watermark
        following = watermark + 1
        local = self._local(following)
        again = int(self.last_instants(np.array([local]))[0])
        if again == following:
            return local - 1
        offset, low, high = local - following, following, again  # clocks go back in between, to the least local time
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._local(middle) - middle == offset else (low, middle)
        return self._local(high) - 1

    def instant(self, local: int) -> int:
        """The last instant of a local time or an earlier one; the ends of time are what they are."""
        if local in (MIN_TIMESTAMP, MAX_TIMESTAMP):
            return local
        return int(self.last_instants(np.array([local]))[0])

    def _local(self, instant: int) -> int:
        return int(self.times(np.array([instant]))[0])


def _integers(column: pa.Array) -> Times:
    found: Times = (
        column.cast(_MS).view(pa.int64()).to_numpy() if column.type.tz is None else column.view(pa.int64()).to_numpy()
    )
    return found
