"""Processor cores: how many this process may use, and staying on one of them."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from functools import cache

_PLACE = "\0flowrun-core-"
"""An abstract address of a socket, with the number of a core behind it: one process has it, and it is free when that process ends."""
_taken: list[socket.socket] = []
"""Holds the core of this process, if it has taken one, until it ends."""


@cache
def usable_cores() -> int:
    """Those of the affinity that this process began with, or of the machine where the system knows none; at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stay_on_one_core(processes: int) -> int | None:
    """Have all threads of this process run on one core that no other process has taken so; gives its number.

    It is for one of several processes that divide some work among them. The threads of a Python process take turns at its interpreter
    lock; on several cores each turn wakes another core, which takes up to half as much processor time again. So a process whose siblings
    keep the other cores busy is faster on one. If there are fewer processes than cores nothing is done: what runs without the lock
    is better off on another core then. Nor is it where all cores are taken, this process has taken one, or the system is not Linux.

    Args:
        processes: that divide the work, this one among them.

    >>> stay_on_one_core(0) is None
    True
    """
    if not sys.platform.startswith("linux") or processes < usable_cores() or _taken:
        return None
    for core in sorted(os.sched_getaffinity(0)):
        lease = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lease.bind(f"{_PLACE}{core}")
        except OSError:
            lease.close()
            continue
        _taken.append(lease)
        _move_threads(core)
        return core
    return None


def _move_threads(core: int) -> None:
    """Have all threads run on a core, and so those that they start; one that is started meanwhile by another is found in the next round."""
    moved: set[str] = set()
    while new := {*os.listdir("/proc/self/task")} - moved:
        for thread in new:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), {core})
        moved |= new
