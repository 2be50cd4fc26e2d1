"""Errors that connectors raise: their messages get the name that the user gave the source or sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from flowrun.api.refusals import retryable_io
from flowrun.errors import ConnectorError, DataError, OptionError


@contextmanager
def named(place: str) -> Iterator[None]:
    """Put `place` (e.g. `source 'orders'`) before the messages of what is raised inside.

    Flowrun's own errors keep their class; failures of files, sockets and Arrow's readers become `ConnectorError`s.
    """
    try:
        yield
    except (ConnectorError, DataError, OptionError) as error:
        if place not in error.message:
            error.message = f"{place}: {error.message}"
            error.args = (error.message,)
        raise
    except (OSError, pa.ArrowException) as error:
        raise ConnectorError(f"{place}: {type(error).__name__}: {error}", retryable=retryable_io(error)) from error
