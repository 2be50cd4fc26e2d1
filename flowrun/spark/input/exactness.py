"""Reading optimistically: Spark's own parsers read what they read as flowrun does, and stop at the first record of which that is not sure.

Then everything is read again with flowrun's parsers, which are exact: they know what a number in quotes means, and which record is wrong
and why. So clean data takes the fast way, and no data gives another result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flowrun.functions.spark_text import quote_text

T = TypeVar("T")

_MARKER = "flowrun reads this again by itself"


class NotExactError(Exception):
    """Spark would not read this as flowrun does; says what."""


class ReadAgainError(Exception):
    """A run failed that relied on Spark's readers; `__cause__` says of what.

    Spark may compute with a record before it finds that it cannot be trusted with it (a key is NULL there, a number too great), so the
    failure may be none of the data.
    """


def must(condition: str) -> str:
    """A condition as Spark SQL that is true, or stops the run so that it is begun again with exact readers."""
    return f"CASE WHEN {condition} THEN TRUE ELSE raise_error({quote_text(_MARKER)}) END"


def optimistically(run: Callable[[bool], T]) -> T:
    """`run(False)`, and if that met a record that Spark cannot be trusted with, `run(True)`, which is to use exact readers."""
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
