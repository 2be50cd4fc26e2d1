"""Damage in whole files: it stays until somebody writes the file again, while what a disk or a store could not do may pass."""

from __future__ import annotations

import re

import pyarrow as pa

from flowrun.api.refusals import retryable_io
from flowrun.errors import ConnectorError

REMEDY = "write it again, or put a file without rows in its place; if other programs can read it, check `format`"
_OF_STORES = re.compile(r"AWS Error|google::cloud|Azure|HDFS|curl|errno", re.IGNORECASE)
"""What clients of stores say in each error; pyarrow raises the same kind of error for those as for damage."""


class DamagedInputError(ConnectorError):
    """A file of a source is damaged or not complete. What finds the damage takes it to be there for good."""

    def __init__(self, message: str, *, hint: str = REMEDY) -> None:
        super().__init__(message, retryable=False, hint=hint)


def is_damage(error: BaseException) -> bool:
    """Whether an error that came up while a file was read and decoded is the fault of its content.

    >>> is_damage(OSError("Unexpected end of stream")), is_damage(OSError(5, "Input/output error"))
    (True, False)
    """
    if isinstance(error, MemoryError | pa.ArrowCancelled):
        return False
    if not isinstance(error, OSError):
        return True
    return type(error) is OSError and error.errno is None and _OF_STORES.search(str(error)) is None


def unreadable(message: str, error: BaseException, *, hint: str = REMEDY) -> ConnectorError:
    """The error for a file that cannot be decoded, or part of it.

    Args:
        message: what cannot be read; the reason is added.
        error: of pyarrow.
        hint: what to do if the file is damaged.
    """
    whole = f"{message}: {(str(error).splitlines() or [type(error).__name__])[0]}"
    if is_damage(error):
        return DamagedInputError(whole, hint=hint)
    return ConnectorError(whole, retryable=retryable_io(error))
