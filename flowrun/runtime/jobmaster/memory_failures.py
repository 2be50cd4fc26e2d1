"""Failures for want of memory or threads: a restart asks for as much again, so it is no help."""

from __future__ import annotations

_NO_THREAD = "can't start new thread"
"""What Python says, with a plain RuntimeError, when the system gives no thread: its stack is memory too."""

REFUSAL = (
    "not restarted: the system gave the job no more memory or threads, and a restart would ask for as much; "
    "lower settings.parallelism, or raise what limits the process (the container's memory, ulimit -u, ulimit -v)"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory or threads were refused: Python's, Arrow's and NumPy's own errors, or what came of one of them.

    >>> failed = ValueError("no rows")
    >>> failed.__cause__ = MemoryError()
    >>> is_out_of_memory(failed), is_out_of_memory(RuntimeError("can't start new thread")), is_out_of_memory(OSError())
    (True, True, False)
    """
    seen: set[int] = set()  # a user's function may raise an error that is its own cause
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, MemoryError) or (isinstance(current, RuntimeError) and str(current) == _NO_THREAD):
            return True
        seen.add(id(current))
        current = current.__cause__
    return False
