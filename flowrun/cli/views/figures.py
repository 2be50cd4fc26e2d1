"""Counts, durations and states as texts for people."""

from __future__ import annotations

from enum import Enum


def count_text(number: float) -> str:
    """A count with at most four digits and a unit.

    >>> count_text(950), count_text(12_345), count_text(7_800_000)
    ('950', '12.3 k', '7.8 M')
    """
    for unit, symbol in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.1f} {symbol}"
    return f"{number:.0f}"


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
