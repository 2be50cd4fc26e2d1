"""The state table of a process function's timers: key group, key columns, `__timestamp` (ms), `__domain` (event or processing)."""

from __future__ import annotations

import pyarrow as pa

from flowrun.operators.process.loading import TIMERS
from flowrun.operators.timers import DOMAIN_COLUMN, TIMESTAMP_COLUMN
from flowrun.state.backend.tables import StateTable


def timer_table(keys: pa.Schema, max_parallelism: int) -> StateTable:
    """The table for some key columns."""
    entry = (pa.field(TIMESTAMP_COLUMN, pa.int64()), pa.field(DOMAIN_COLUMN, pa.string()))
    return StateTable(TIMERS, keys, entry, (), max_parallelism)
