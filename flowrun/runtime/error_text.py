"""Errors as one line of text."""

from __future__ import annotations

from flowrun.errors import DataError, FlowrunError


def describe_error(error: BaseException) -> str:
    """An error as one line: with its type unless it is one of ours, and with the row of the batch if that is known.

    >>> describe_error(ValueError("bad")), describe_error(DataError("no number", row=3))
    ('ValueError: bad', 'no number (row 3 of the batch)')
    """
    if isinstance(error, DataError) and error.row is not None:
        return f"{error.message} (row {error.row} of the batch)"
    if isinstance(error, FlowrunError):
        return error.message
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
