"""Ends a job with a clear message before the system would end its process without a word for want of memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import pyarrow as pa

from flowrun.core.units import size_text
from flowrun.runtime.watchdog.memory import MemoryLimit, memory_limits

_SHARE = 16
_MOST_BYTES = 256 << 20


def memory_problem(limits: Callable[[], list[MemoryLimit]] = memory_limits) -> MemoryError | None:
    """What is wrong if too little is left of a limit, even after what flowrun keeps in reserve is given back.

    Args:
        limits: reads those of the process.
    """
    if not any(map(is_low, limits())):
        return None
    give_back()
    low = next(filter(is_low, limits()), None)
    if low is None:
        return None
    left = f"{size_text(max(low.left, 0))} of {size_text(low.limit)} ({low.what}) are left"
    return MemoryError(f"memory is running out: {left}, and the system would end the process")


def is_low(limit: MemoryLimit) -> bool:
    """Whether less than a sixteenth is left, or than 256 MiB if that is less.

    >>> is_low(MemoryLimit(512 << 20, 31 << 20, "")), is_low(MemoryLimit(512 << 20, 32 << 20, ""))
    (True, False)
    >>> is_low(MemoryLimit(64 << 30, 300 << 20, ""))
    False
    """
    return limit.left < min(limit.limit // _SHARE, _MOST_BYTES)


def give_back() -> None:
    """Return free memory that Arrow and the C library keep for later to the system."""
    pa.default_memory_pool().release_unused()
    if sys.platform.startswith("linux"):
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):  # glibc
            library.malloc_trim(0)
