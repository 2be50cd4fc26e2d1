"""Process functions: users' classes that see every row (or batch), keep state a key, and set timers.

A function extends `KeyedProcessFunction` (or `ProcessFunction`, which has neither keys, state a key nor timers) and has **either**

* `process_element(row, context)`, for each row, a dict; with timers `on_timer(timestamp, context)`; **or**
* `process_batch(batch, context)`, for each `pa.RecordBatch`; with timers `on_timers(timestamps, context)`. Twenty times as fast and more.

State is declared in the class: `seen = value_state("BIGINT", ttl="1h")`; from `open` on `self.seen` is its handle. A function is made
once a subtask, with the arguments given in the pipeline; every call comes from the subtask's own thread.

    class Dedup(KeyedProcessFunction):
        seen = value_state("BOOLEAN", ttl="1h")

        def process_element(self, row, context):
            if not self.seen.value():
                self.seen.update(True)
                yield row

What comes back: nothing, a row, or an iterable of rows (`process_element`, `on_timer`); nothing, a batch, or a batch with the position
of each row's parent (`process_batch`, as `flat_map` functions do). `context.collect` and `context.side_output` work beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from flowrun.api.keyed_state import (
    AppendingColumn,
    ListColumn,
    MapColumn,
    Positions,
    TimeToLive,
    TtlUpdate,
    ValueColumn,
    Values,
    aggregating_state,
    list_state,
    map_state,
    operator_state,
    reducing_state,
    value_state,
)
from flowrun.api.metrics import SubtaskContext
from flowrun.api.state import AggregateFunction, AppendingState, ListState, MapState, ValueState
from flowrun.core.arrays import Integers


class OpenContext(SubtaskContext, Protocol):
    """What `open` is told."""

    def state(self, name: str) -> Any:
        """The handle of a declared state. Raises StateError if there is none of this name."""
        ...


class TimeContext(Protocol):
    """Time as a function sees it; ms since the epoch."""

    @property
    def current_watermark(self) -> int:
        """Event time: no row before it is expected any more. `MIN_TIMESTAMP` at first, `MAX_TIMESTAMP` at the end of the input."""
        ...

    @property
    def processing_time(self) -> int:
        """What the clock shows."""
        ...

    @property
    def time_domain(self) -> str:
        """While timers fire: `event` or `processing`; else empty."""
        ...


class ProcessContext(TimeContext, Protocol):
    """The context of one row, without a key."""

    @property
    def timestamp(self) -> int | None:
        """Event time of the row (or of the timer), ms; None if the stream has no event time."""
        ...

    def collect(self, row: Mapping[str, Any], timestamp: int | None = None) -> None:
        """Send a row; `timestamp`: its event time, if it is not that of the current row."""
        ...

    def side_output(self, name: str, row: Mapping[str, Any], timestamp: int | None = None) -> None:
        """Send a row to a declared side output."""
        ...


class KeyedProcessContext(ProcessContext, Protocol):
    """The context of one row or timer and its key. Timers belong to the key; registering one twice is registering it once."""

    @property
    def current_key(self) -> tuple[Any, ...]:
        """Values of the key columns."""
        ...

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark reaches `timestamp`; with the next watermark if it already has."""
        ...

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the clock reaches `timestamp`."""
        ...

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget a timer of this key, if it is registered."""
        ...

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget a timer of this key, if it is registered."""
        ...


class BatchContext(TimeContext, Protocol):
    """The context of one batch, without keys."""

    @property
    def timestamps(self) -> pa.Int64Array | None:
        """Event time of each row, ms; None if the stream has no event time."""
        ...

    def collect(self, rows: pa.RecordBatch, parents: Values | None = None, timestamps: Values | None = None) -> None:
        """Send rows. Their event times are `timestamps`, or those of `parents`: positions in the batch; None: row i is made of row i."""
        ...

    def side_output(
        self, name: str, rows: pa.RecordBatch, parents: Values | None = None, timestamps: Values | None = None
    ) -> None:
        """Send rows to a declared side output."""
        ...


class KeyedBatchContext(BatchContext, Protocol):
    """The context of one batch and its keys, which are numbered 0, 1, … in the order in which they first appear.

    While timers fire (`on_timers`), there is one timer a key, and "row" means timer.
    """

    @property
    def keys(self) -> pa.RecordBatch:
        """The distinct keys of the batch."""
        ...

    @property
    def num_keys(self) -> int:
        """How many there are."""
        ...

    @property
    def key_index(self) -> Integers:
        """For each row the position of its key in `keys`: for `np.bincount`, `np.add.at`, `array.take`."""
        ...

    @property
    def occurrences(self) -> Integers:
        """For each row, how many rows of its key are before it in the batch."""
        ...

    @property
    def first_rows(self) -> Integers:
        """For each key the position of its first row."""
        ...

    @property
    def last_rows(self) -> Integers:
        """For each key the position of its last row."""
        ...

    def register_event_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        """Register timers: one for each of `keys` (None: for each key of the batch); NULL registers none."""
        ...

    def register_processing_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        """The same in processing time."""
        ...

    def delete_event_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        """Forget timers, as far as they are registered."""
        ...

    def delete_processing_time_timers(self, timestamps: Values, keys: Positions | None = None) -> None:
        """The same in processing time."""
        ...


class RichFunction:
    """What all functions with state share: a beginning and an end."""

    def open(self, context: OpenContext) -> None:
        """Called once before all else: acquire resources. State can be used, but belongs to no key yet."""

    def close(self) -> None:
        """Called once at the end, after an error too: release them."""


class ProcessFunction(RichFunction):
    """A function over rows or batches, without keys; see the module."""


class KeyedProcessFunction(ProcessFunction):
    """A function over a keyed stream, with state a key and timers; see the module.

    At the end of bounded input event time jumps to its end: all timers fire, those in processing time too, which is the last call.
    A timer that then registers another one in event time, without end, keeps the job from ending: look at `context.current_watermark`.
    """


__all__ = [
    "AggregateFunction",
    "AppendingColumn",
    "AppendingState",
    "BatchContext",
    "KeyedBatchContext",
    "KeyedProcessContext",
    "KeyedProcessFunction",
    "ListColumn",
    "ListState",
    "MapColumn",
    "MapState",
    "OpenContext",
    "ProcessContext",
    "ProcessFunction",
    "RichFunction",
    "TimeToLive",
    "TtlUpdate",
    "ValueColumn",
    "ValueState",
    "aggregating_state",
    "list_state",
    "map_state",
    "operator_state",
    "reducing_state",
    "value_state",
]
