"""Numbers as people read them."""

from __future__ import annotations


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
