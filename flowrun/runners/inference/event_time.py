"""Which column is the event time, and how late rows come: measured in the order of the data, so that the watermarks' delay has a reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.core.types import BIGINT
from flowrun.runners.inference.value_types import Column

_NAME = re.compile(
    r"(^|_)(event_?time|ts|time|timestamp|at|date_?time|occurred|happened|created|epoch|unix_?time)(_|$)"
)
"""Of columns that say when something was, as `_words` has them."""
_EPOCHS = {"s": (1, 946_684_800, 4_102_444_800), "ms": (1_000, 946_684_800_000, 4_102_444_800_000)}
"""Unit → (how many a second, the range of numbers that are taken for times: the years 2000 to 2099)."""
_NICE_MS = (
    1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000,
    7_200_000, 21_600_000, 43_200_000, 86_400_000,
)  # fmt: skip
_MOST_MS = 3_600_000
"""A longer disorder is taken for single stragglers: the delay then leaves one row in a thousand behind."""
_STRAGGLERS = 0.999


@record
class EventTime:
    """A proposal.

    Attributes:
        column: name of the column.
        unit: of numbers, `s` or `ms`; None: the column is a time.
        delay_ms: of watermarks.
        late: which part of the sample's rows would come later than that.
        disorder_ms: by how much the latest row of the sample is behind one before it.
        rows: how many rows were measured.
    """

    column: str
    unit: str | None
    delay_ms: int
    late: float
    disorder_ms: int
    rows: int

    @property
    def reason(self) -> str:
        """Why this delay, as a clause for people."""
        if not self.disorder_ms:
            return f"{self.rows:,} rows of the sample are in order"
        behind = f"{self.disorder_ms / 1000:g} s"
        if not self.late:
            return f"in {self.rows:,} rows of the sample none is more than {behind} behind one before it"
        return f"{self.late:.2%} of {self.rows:,} rows of the sample are later; the latest is {behind} behind one before it"


def propose(columns: Sequence[Column], parts: Sequence[Sequence[dict[str, Any]]]) -> EventTime | None:
    """The best event time; None: no column looks like one.

    Args:
        columns: of the rows.
        parts: rows in the order in which each file, or partition, has them.
    """
    best: tuple[tuple[bool, bool, float], EventTime] | None = None
    for column in columns:
        unit = _unit(column, parts)
        if column.nulls or (unit is None and not (column.type.is_timestamp)):
            continue
        times = [_millis([r[column.name] for r in rows], unit) for rows in parts if rows]
        found = measured(column.name, unit, times)
        span = max(int(t.max()) for t in times) - min(int(t.min()) for t in times) + 1
        score = (bool(_NAME.search(_words(column.name))), span > 1, -found.disorder_ms / span)
        if (unit is None or score[0]) and (best is None or score > best[0]):
            best = (score, found)
    return None if best is None else best[1]


def _words(name: str) -> str:
    """The words of a name.

    >>> _words("@timestamp"), _words("createdAt"), _words("EventTime")
    ('_timestamp', 'created_at', 'event_time')
    """
    return re.sub(r"[^0-9A-Za-z]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()


def _unit(column: Column, parts: Sequence[Sequence[dict[str, Any]]]) -> str | None:
    """The unit of a column of numbers that all look like times since the epoch."""
    if column.type != BIGINT or column.nulls:
        return None
    values = [r[column.name] for rows in parts for r in rows]
    for unit, (_, least, most) in _EPOCHS.items():
        if all(least <= value <= most for value in values):
            return unit
    return None


def _millis(values: Sequence[Any], unit: str | None) -> Integers:
    if unit is not None:
        return np.array(values, np.int64) * (1_000 // _EPOCHS[unit][0])
    return np.array([_to_millis(value) for value in values], np.int64)


def _to_millis(value: Any) -> int:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)


def measured(column: str, unit: str | None, parts: Sequence[Integers]) -> EventTime:
    """A column as event time, with the disorder of its times within each file or partition.

    Args:
        column: its name.
        unit: of numbers; see `EventTime`.
        parts: times of each file or partition, ms since 1970, in the order in which it has them; none is empty.
    """
    behind = np.concatenate([np.maximum.accumulate(times) - times for times in parts])
    disorder = int(behind.max())
    wanted = disorder if disorder <= _MOST_MS else int(np.quantile(behind, _STRAGGLERS, method="higher"))
    delay = 0 if not wanted else next((nice for nice in _NICE_MS if nice >= wanted), wanted)
    return EventTime(column, unit, delay, float((behind > delay).mean()), disorder, len(behind))
