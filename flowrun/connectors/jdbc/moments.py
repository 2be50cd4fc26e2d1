"""Days and moments of pushed filters, as databases read them."""

from __future__ import annotations

import datetime as dt

from flowrun.api.connector import Comparison

_EPOCH = dt.datetime(1970, 1, 1)


def day_text(days: int) -> str | None:
    """A day, given in days since 1970; None: it is none of the years 1 to 9999.

    >>> day_text(-1), day_text(10**9)
    ('1969-12-31', None)
    """
    try:
        return (_EPOCH.date() + dt.timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def millisecond_range(milliseconds: int) -> tuple[str, str] | None:
    """(a moment, given in ms since 1970; the millisecond after it); None: one of them is in none of the years 1 to 9999.

    >>> millisecond_range(-1)
    ('1969-12-31 23:59:59.999', '1970-01-01 00:00:00.000')
    """
    try:
        first = _EPOCH + dt.timedelta(milliseconds=milliseconds)
        end = first + dt.timedelta(milliseconds=1)
    except OverflowError:
        return None
    return first.isoformat(sep=" ", timespec="milliseconds"), end.isoformat(sep=" ", timespec="milliseconds")


def of_millisecond(name: str, comparison: Comparison, begin: str, stop: str) -> str | None:
    """A condition for a column of finer moments: the values that read as a millisecond begin with it and end before the next one.

    Args:
        name: the column, quoted.
        comparison: with the millisecond.
        begin: the millisecond, as a literal.
        stop: the next one.

    >>> of_millisecond("t", Comparison.EQ, "5", "6"), of_millisecond("t", Comparison.NE, "5", "6")
    ('(t >= 5 AND t < 6)', None)
    """
    match comparison:
        case Comparison.EQ:
            return f"({name} >= {begin} AND {name} < {stop})"
        case Comparison.LE:
            return f"{name} < {stop}"
        case Comparison.LT | Comparison.GE | Comparison.GT:
            return f"{name} {comparison.value} {begin}"
        case _:
            return None
