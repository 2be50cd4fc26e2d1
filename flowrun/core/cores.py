"""How many processor cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Those of its affinity, or of the machine where the system knows none; at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
