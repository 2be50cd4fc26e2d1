"""The recipe of the operator that sees to one row a primary key."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.api.operator import OperatorSpec
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.key_rows import WRITTEN
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema

ROWS = "rows"
"""Name of the state table with the row of each key."""
CHANGES = "changes"
"""Name of the state table with the changes that wait for the watermark."""
COPIES = "__copies"
"""State column: how many equal rows come; below 0: go."""
WATERMARK = "__watermark"
"""State column: watermark of the sender when the change came, ms."""
ROWS_COUNTERS = (COPIES, WRITTEN)
CHANGES_COUNTERS = (COPIES, WATERMARK)


@record(slots=False)
class ConflictResolutionFactory(OperatorSpec):
    """One row a key. Input must be partitioned by the key columns; behind the columns of `schema` it has the watermark of its sender.

    Attributes:
        schema: of the rows that are sent.
        keys: positions of the key columns. NULL is a key like any other.
        table: name of the table that the rows are written to.
        fails: several different rows of a key fail the job; else the first one stays.
        ttl_ms: how long a row is kept whose key gets no changes, ms of processing time; 0: for ever.
    """

    schema: Schema
    keys: tuple[int, ...]
    table: str
    fails: bool
    ttl_ms: int = 0

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The row of each key, and the changes that wait for the watermark."""
        return {
            ROWS: row_store_schema(self.schema, self.keys, ROWS_COUNTERS),
            CHANGES: row_store_schema(self.schema, self.keys, CHANGES_COUNTERS),
        }

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state tables hold."""
        return {
            ROWS: {
                ROW_COLUMN: "arrival number",
                COPIES: "how many equal rows the query has",
                WRITTEN: "processing time of the key's last change, ms since the epoch",
            },
            CHANGES: {
                ROW_COLUMN: "arrival number",
                COPIES: "how many equal rows come (below 0: go)",
                WATERMARK: "watermark of the sender, ms since the epoch; a later one makes the change count",
            },
        }
