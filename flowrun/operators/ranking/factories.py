"""Recipes of the ranking operators: what lowering builds and a job graph carries.

All positions are those of the input's columns. Input must be partitioned by the partition or key columns; without them it must be one
subtask. NULL is a partition like any other.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.api.operator import BatchForm, OperatorSpec
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import RankFunction, SortKey, TimeDomain
from flowrun.operators.keyed.key_rows import WRITTEN
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema
from flowrun.operators.ranking.row_runs import waiting_schema

ROWS = "rows"
"""Name of the state table of each of these operators."""
EVENT_TIME = "__event_time"
"""State column of deduplication: event time of the row, ms; 0 if rows have none."""
SENT = "__sent"
"""State column of the first by event time: 1 once the row was sent, 0 while it waits for the watermark."""
ROW_MEANINGS = {
    ROW_COLUMN: "arrival number",
    WRITTEN: "processing time when the row was written, ms since the epoch",
}
"""What the columns hold that state tables of rows have besides the rows'."""
GREATEST_RANK = 1 << 60
"""A bound that no rank reaches."""


@record(slots=False)
class RankFactory(OperatorSpec):
    """Top-N, kept up to date.

    Attributes:
        partition: columns whose values tell partitions apart.
        order: of the rows of a partition; empty: order of arrival.
        first: the least rank that is sent.
        last: the greatest.
        rank_column: rows are sent with their rank, a BIGINT behind the input's columns.
        retracting: the input takes rows back. Then all rows are kept, not only the top ones.
        ttl_ms: how long a partition is kept that gets no rows, ms of processing time; 0: for ever.
    """

    input_schema: Schema
    output_schema: Schema
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    ranking: RankFunction
    first: int
    last: int
    rank_column: bool
    retracting: bool
    ttl_ms: int = 0

    batch_form = BatchForm.BY_KEYS
    uses_event_time = False

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last <= GREATEST_RANK:
            raise ValueError(f"ranks {self.first} to {self.last}: expected 1 ≤ first ≤ last ≤ {GREATEST_RANK}")

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The rows that are kept."""
        return {ROWS: row_store_schema(self.input_schema, self.partition, (WRITTEN,))}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        return {ROWS: ROW_MEANINGS}


@record(slots=False)
class DeduplicateFactory(OperatorSpec):
    """One row a key of an append-only input.

    Attributes:
        keys: columns whose values tell keys apart.
        time: the event-time column; None: rows are in order of arrival (processing time).
        keep_last: the last row of a key is kept, not the first.
        rank_column: a BIGINT 1 follows the input's columns.
        ttl_ms: how long a key is kept that gets no rows, ms of processing time; 0: for ever.
    """

    input_schema: Schema
    output_schema: Schema
    keys: tuple[int, ...]
    time: int | None
    keep_last: bool
    rank_column: bool = False
    ttl_ms: int = 0

    batch_form = BatchForm.BY_KEYS

    @property
    def waits(self) -> bool:
        """Whether rows are sent by the watermark: the first by event time."""
        return self.time is not None and not self.keep_last

    @property
    def counters(self) -> tuple[str, ...]:
        """State columns beside those of the rows."""
        return (EVENT_TIME, WRITTEN, SENT) if self.waits else (EVENT_TIME, WRITTEN)

    @property
    def stores_rows(self) -> bool:
        """Whether whole rows are remembered: who never updates can do with keys, if there are any."""
        return self.keep_last or self.time is not None or not self.keys

    @property
    def stored_schema(self) -> Schema:
        """Columns of what is remembered."""
        if self.stores_rows:
            return self.input_schema
        return Schema(tuple(self.input_schema.fields[k] for k in self.keys))

    @property
    def stored_keys(self) -> tuple[int, ...]:
        """Positions of the keys in `stored_schema`."""
        return self.keys if self.stores_rows else tuple(range(len(self.keys)))

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The row, or the key, that is kept of each key."""
        return {ROWS: row_store_schema(self.stored_schema, self.stored_keys, self.counters)}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        meanings = {**ROW_MEANINGS, EVENT_TIME: "event time of the row, ms since the epoch"}
        if self.waits:
            meanings[SENT] = "1: the row was sent; 0: it waits for the watermark"
        return {ROWS: meanings}


@record(slots=False)
class WindowRankFactory(OperatorSpec):
    """Top-N of windows, sent when they close.

    Attributes:
        window: columns with the window's start and end.
        partition: columns whose values tell the partitions of a window apart.
        order: of the rows of a partition; empty: order of arrival.
        first: the least rank that is sent.
        last: the greatest.
        rank_column: rows are sent with their rank, a BIGINT behind the input's columns.
        domain: which clock closes windows.
        newest_of_equals: of rows that are equal in the order the one that came last counts first.
        time_zone: whose clocks the windows go by.
    """

    input_schema: Schema
    output_schema: Schema
    window: tuple[int, int]
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    ranking: RankFunction
    first: int
    last: int
    rank_column: bool
    domain: TimeDomain = TimeDomain.EVENT
    newest_of_equals: bool = False
    time_zone: str = UTC_ZONE

    batch_form = BatchForm.BY_KEYS

    @property
    def keys(self) -> tuple[int, ...]:
        """Columns that rows are shuffled and kept by: the partition, and the window as far as it is not among them."""
        return (*self.partition, *(w for w in self.window if w not in self.partition))

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The rows of open windows."""
        return {ROWS: waiting_schema(self.input_schema, self.keys)}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        return {ROWS: {ROW_COLUMN: ROW_MEANINGS[ROW_COLUMN]}}


@record(slots=False)
class TemporalSortFactory(OperatorSpec):
    """Rows in order of time, in one subtask.

    Attributes:
        order: the time attribute, ascending; then other keys.
        domain: which clock lets rows out.
    """

    input_schema: Schema
    order: tuple[SortKey, ...]
    domain: TimeDomain

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The rows that wait."""
        return {ROWS: waiting_schema(self.input_schema, ())}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        return {ROWS: {ROW_COLUMN: ROW_MEANINGS[ROW_COLUMN]}}
