"""The timers of the general window operator as a log of changes: a snapshot takes what came and went since the last one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN, SegmentedTable, keyed_schema
from flowrun.api.window_function import Window
from flowrun.core.semantics import TimeDomain
from flowrun.operators.timers import DOMAIN_COLUMN, TIMESTAMP_COLUMN, Timer
from flowrun.state.backend.objects import ChangeSet
from flowrun.state.backend.tables import unlike
from flowrun.state.backend.upsert_log import UpsertLog
from flowrun.state.key_groups import key_groups_or_zero

BOUNDS = pa.struct([("start", pa.int64()), ("end", pa.int64())])
"""Arrow type of a window as a timer's namespace."""


def timer_schema(keys: Sequence[pa.Field]) -> pa.Schema:
    """Columns of the state table: which window waits for which time."""
    bounds = [pa.field(n, pa.int64(), nullable=False) for n in ("window_start", "window_end", TIMESTAMP_COLUMN)]
    taken = {KEY_GROUP_COLUMN, DELETED_COLUMN, DOMAIN_COLUMN, *(f.name for f in bounds)}
    renamed = [pa.field(unlike(f.name, taken), f.type) for f in keys]
    return keyed_schema(renamed, [*bounds, pa.field(DOMAIN_COLUMN, pa.string(), nullable=False)])


class TimerLog:
    """Receives the changes of a timer service and writes them.

    Attributes:
        changes: what the timer service is to be given.
    """

    def __init__(self, schema: pa.Schema, max_parallelism: int) -> None:
        self.changes = {domain: ChangeSet() for domain in TimeDomain}
        self._schema = schema.append(pa.field(DELETED_COLUMN, pa.bool_(), nullable=False))
        self._max_parallelism = max_parallelism
        self._log = UpsertLog(self._schema, tuple(schema.names[1:]))

    def snapshot(self, live: int) -> SegmentedTable:
        """The table, of `live` timers."""
        for domain, changes in self.changes.items():
            changed, rest = changes.take()
            self._log.append(len(changed), partial(_rows, self._schema, self._max_parallelism, changed, domain, rest))
        return self._log.table(live)


def _rows(
    schema: pa.Schema, max_parallelism: int, changed: Mapping[Timer, Any], domain: TimeDomain, _rest: object
) -> pa.Table:
    count = len(changed)
    key_fields = list(schema)[1:-5]
    keys = [pa.array([t.key[i] for t in changed], f.type) for i, f in enumerate(key_fields)]
    columns = [
        pa.array(key_groups_or_zero(keys, count, max_parallelism)),
        *keys,
        pa.array(np.fromiter((t.namespace[0] for t in changed), np.int64, count)),
        pa.array(np.fromiter((t.namespace[1] for t in changed), np.int64, count)),
        pa.array(np.fromiter((t.timestamp for t in changed), np.int64, count)),
        pa.repeat(pa.scalar(domain.value), count),
        pa.array([value is not True for value in changed.values()], pa.bool_()),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def restored_timers(table: pa.RecordBatch) -> Iterator[tuple[int, Window, bool]]:
    """(time, window, whether it is processing time) of each row."""
    columns = (table.column(n).to_pylist() for n in ("window_start", "window_end", TIMESTAMP_COLUMN, DOMAIN_COLUMN))
    for start, end, time, domain in zip(*columns, strict=True):
        yield time, Window(start, end), domain == TimeDomain.PROCESSING.value
