"""Counts, durations and states as texts for people."""

from __future__ import annotations

from enum import Enum

SHORT_ID = 8
"""How many digits of a job id are shown."""


def count_text(number: float) -> str:
    """A count with at most four digits and a unit.

    >>> count_text(950), count_text(12_345), count_text(7_800_000)
    ('950', '12.3 k', '7.8 M')
    """
    for unit, symbol in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.1f} {symbol}"
    return f"{number:.0f}"


def share_text(ms_per_second: float) -> str:
    """Milliseconds of a second as a share.

    >>> share_text(873.4)
    '87 %'
    """
    return f"{ms_per_second / 10:.0f} %"


def duration_text(ms: float) -> str:
    """A duration in the unit that fits.

    >>> duration_text(12), duration_text(4_210), duration_text(83_000)
    ('12 ms', '4.2 s', '1 min 23 s')
    """
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


_UNITS = ((1e3, 1.0, "ms"), (6e5, 1e3, "s"), (7.2e6, 6e4, "min"), (1.728e8, 3.6e6, "h"))
"""Below how many ms a duration is shown in a unit, and the ms of that."""


def short_duration_text(ms: float) -> str:
    """A duration in one unit and at most six characters, for columns.

    >>> short_duration_text(12), short_duration_text(4_210), short_duration_text(83_000), short_duration_text(4_000_000)
    ('12 ms', '4.2 s', '83 s', '67 min')
    >>> short_duration_text(20_000_000), short_duration_text(400_000_000)
    ('5.6 h', '4.6 d')
    """
    unit, text = next(((u, t) for most, u, t in _UNITS if ms < most), (8.64e7, "d"))
    value = ms / unit
    return f"{value:.1f} {text}" if value < 10 and text in ("s", "h", "d") else f"{value:.0f} {text}"


def counted_text(number: float, one: str, many: str | None = None) -> str:
    """A count with its noun in the singular or plural.

    >>> counted_text(1, "row"), counted_text(12_345, "row"), counted_text(0, "entry", "entries")
    ('1 row', '12.3 k rows', '0 entries')
    """
    return f"{count_text(number)} {one if number == 1 else many or one + 's'}"


def state_text(state: Enum) -> str:
    """The state of a job or subtask as people write it.

    >>> from flowrun.runtime.lifecycle import JobState
    >>> state_text(JobState.CANCELED), state_text(JobState.RUNNING)
    ('cancelled', 'running')
    """
    return spelled_state(str(state.value))


def spelled_state(state: str) -> str:
    """The name of a state, as it stands in JSON, in the spelling that people are shown.

    >>> spelled_state("canceled")
    'cancelled'
    """
    return state.lower().replace("canceled", "cancelled").replace("canceling", "cancelling")
