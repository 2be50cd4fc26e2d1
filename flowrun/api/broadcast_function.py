"""Functions of a stream and a broadcast stream, whose rows reach every subtask: rules, rates and settings that all rows are met by.

As other process functions they work **either** on rows **or** on batches, with both inputs:

| | of the stream | of the broadcast stream |
|---|---|---|
| on rows | `process_element(row, context)` | `process_broadcast_element(row, context)` |
| on batches | `process_batch(batch, context)` | `process_broadcast_batch(batch, context)` |

What the broadcast stream says is kept in broadcast state: maps that are the same on all subtasks, as every subtask gets the same rows and
makes the same changes. So they are changed by `process_broadcast_…` only, and read everywhere; whoever changes them must go by the rows
alone, not by the subtask, its clock or its other state. Rows of both streams come in no particular order. A checkpoint has the maps
of all subtasks, and at another parallelism every subtask starts with all entries.

    class Alerts(KeyedBroadcastProcessFunction):
        limits = broadcast_state("STRING", "DOUBLE")
        spent = value_state("DOUBLE")

        def process_element(self, order, context):
            self.spent.update((self.spent.value() or 0.0) + order["amount"])
            limit = self.limits.get(order["country"])
            if limit is not None and self.spent.value() > limit:
                yield {"user": order["user"], "spent": self.spent.value()}

        def process_broadcast_element(self, limit, context):
            self.limits.put(limit["country"], limit["amount"])

    orders.key_by("user").connect(limits.broadcast("limits")).process(Alerts(), schema)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from flowrun.api.keyed_state import Values, broadcast_state
from flowrun.api.process_function import BatchContext, OpenContext, ProcessContext, RichFunction
from flowrun.core.arrays import Bools

K = TypeVar("K")
V = TypeVar("V")


class BroadcastState(Protocol[K, V]):
    """A map that is the same on all subtasks, for functions on rows.

    `put`, `remove` and `clear` raise DataError outside of `process_broadcast_element`.
    """

    def get(self, key: K) -> V | None:
        """The value of an entry; None if it is not there."""
        ...

    def __contains__(self, key: object) -> bool: ...

    def __len__(self) -> int: ...

    def items(self) -> Iterator[tuple[K, V]]:
        """A copy of the entries, in the order in which they came."""
        ...

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry."""
        ...

    def remove(self, key: K) -> None:
        """Remove an entry, if it is there."""
        ...

    def clear(self) -> None:
        """Remove all entries."""
        ...


class BroadcastColumn(Protocol):
    """The same for functions on batches; changed in `process_broadcast_batch` only."""

    def get(self, map_keys: Values) -> pa.Array:
        """The values of entries, one for each of `map_keys`; NULL for those that are not there."""
        ...

    def contains(self, map_keys: Values) -> Bools:
        """Which entries are there."""
        ...

    def __len__(self) -> int: ...

    def items(self) -> tuple[pa.Array, pa.Array]:
        """All entries, as keys and values, in the order in which they came."""
        ...

    def put(self, map_keys: Values, values: Values) -> None:
        """Add or replace entries; of several alike the last counts."""
        ...

    def remove(self, map_keys: Values) -> None:
        """Remove entries, as far as they are there."""
        ...

    def clear(self) -> None:
        """Remove all entries."""
        ...


class KeyedBroadcastContext(ProcessContext, Protocol):
    """The context of a row of the broadcast stream beside a keyed one. There is no key, so keyed state cannot be used but by this."""

    def apply_to_keyed_state(self, state: Any, function: Callable[[tuple[Any, ...], Any], None]) -> None:
        """Call `function(key, state)` for each key of this subtask that has something in a keyed state, which it may change.

        Args:
            state: the function's attribute, or the state's name.
            function: gets the values of the key columns, and the state, which then shows that key.
        """
        ...


class KeyedBroadcastBatchContext(BatchContext, Protocol):
    """The same for a batch of the broadcast stream."""

    def apply_to_keyed_state(self, state: Any, function: Callable[[pa.RecordBatch, Any], None]) -> None:
        """Call `function(keys, state)` once, with all keys of this subtask that have something in a keyed state; not if there are none."""
        ...


class BroadcastProcessFunction(RichFunction):
    """A function of a stream without keys and a broadcast stream; see the module."""


class KeyedBroadcastProcessFunction(BroadcastProcessFunction):
    """A function of a keyed stream and a broadcast stream, with state a key and timers; see the module.

    `on_timer` and `on_timers` may read broadcast state.
    """


__all__ = [
    "BroadcastColumn",
    "BroadcastProcessFunction",
    "BroadcastState",
    "KeyedBroadcastBatchContext",
    "KeyedBroadcastContext",
    "KeyedBroadcastProcessFunction",
    "OpenContext",
    "broadcast_state",
]
