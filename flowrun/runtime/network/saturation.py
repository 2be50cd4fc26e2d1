"""Whether this process has processor time to spare: if not, rows are better sent in fewer and larger batches."""

from __future__ import annotations

import time
from collections.abc import Callable

_SAMPLE_NS = 50_000_000
_BUSY = 0.8
"""Part of one core: the threads of a Python process take turns, so more than one is seldom had."""


class Saturation:
    """Compares the processor time that this process has used with the time that has passed. For any thread.

    A race of two threads costs no more than a sample: they write the same kind of values.

    Args:
        used_ns: gives the processor time of the process so far, ns.
    """

    def __init__(self, used_ns: Callable[[], int] = time.process_time_ns) -> None:
        self._used_ns = used_ns
        self._since_ns: int | None = None
        self._used_before_ns = 0
        self._saturated = False

    def is_reached(self, now_ns: int) -> bool:
        """Whether the process was busy all the time lately; `now_ns` is that of a monotonic clock."""
        since = self._since_ns
        if since is None or now_ns - since >= _SAMPLE_NS:
            used = self._used_ns()
            if since is not None:
                self._saturated = used - self._used_before_ns >= _BUSY * (now_ns - since)
            self._since_ns, self._used_before_ns = now_ns, used
        return self._saturated
