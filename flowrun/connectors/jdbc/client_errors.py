"""Errors of client libraries become flowrun's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from flowrun.errors import FlowrunError


@contextmanager
def translating(
    is_of_client: Callable[[Exception], bool], meaning: Callable[[Exception], FlowrunError]
) -> Iterator[None]:
    """Errors inside that are those of a client library become what they mean; flowrun's own and Arrow's stay as they are."""
    try:
        yield
    except (FlowrunError, pa.ArrowException):
        raise
    except Exception as error:
        if not is_of_client(error):
            raise
        raise meaning(error) from None  # the library's own traceback could show what it was told


def is_from(error: Exception, *packages: str) -> bool:
    """Whether an error is one of these packages, or of the system below them."""
    return type(error).__module__.partition(".")[0] in packages or isinstance(error, OSError)
