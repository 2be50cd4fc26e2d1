"""Optimistic reading: Spark's own parsers read records, and stop at the first one that they may read in another way than flowrun's.

Then everything is read again with flowrun's parsers, which are exact: they know what a number in quotes means, and which record is wrong
and why. So clean data is read fast, and the result is the same for all data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flowrun.functions.spark_text import quote_text

T = TypeVar("T")

_MARKER = "flowrun reads this again by itself"


class NotExactError(Exception):
    """Spark would read something in another way than flowrun; the message says what."""


class ReadAgainError(Exception):
    """A run with Spark's readers failed; `__cause__` says why.

    Spark may compute with a record before it is known that it read it in another way (a key is NULL there, a number is too large), so that
    the failure need not be one of the data.
    """


def must(condition: str) -> str:
    """A condition as Spark SQL: it is true, or it stops the run, which then begins again with exact readers."""
    return f"CASE WHEN {condition} THEN TRUE ELSE raise_error({quote_text(_MARKER)}) END"


def optimistically(run: Callable[[bool], T]) -> T:
    """The result of `run(False)`, or, if that met a record that Spark may read in another way, of `run(True)`, which uses exact readers."""
    try:
        return run(False)
    except Exception as error:
        if not isinstance(error, ReadAgainError) and not _is_marked(error):
            raise
    return run(True)


def _is_marked(error: BaseException | None) -> bool:
    while error is not None:
        if _MARKER in str(error):
            return True
        error = error.__cause__
    return False
