"""The recipe of the operator that makes whole changes of upserts, and of changes that may come twice."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.api.operator import OperatorSpec
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.key_rows import WRITTEN
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema

ROWS = "rows"
"""Name of the state table."""
EVENT_TIME = "__event_time"
"""State column: event time of the row, ms; 0 if rows have none."""
COUNTERS = (EVENT_TIME, WRITTEN)


@record(slots=False)
class ChangelogNormalizeFactory(OperatorSpec):
    """Whole changes by key. Input must be partitioned by the key columns.

    Attributes:
        schema: of the rows that are sent; those that come may have NULL in all columns but the keys where they delete.
        keys: positions of the key columns. NULL is a key like any other.
        clocks: positions of columns that hold the time at which a row was read: rows that differ in them alone are equal.
        ttl_ms: how long a key is kept that gets no rows, ms of processing time; 0: for ever.
    """

    schema: Schema
    keys: tuple[int, ...]
    ttl_ms: int = 0
    clocks: tuple[int, ...] = ()

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The row of each key."""
        return {ROWS: row_store_schema(self.schema, self.keys, COUNTERS)}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        return {
            ROWS: {
                ROW_COLUMN: "arrival number",
                WRITTEN: "processing time when the row was written, ms since the epoch",
                EVENT_TIME: "event time of the row, ms since the epoch",
            }
        }
