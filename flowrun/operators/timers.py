"""Timers of keyed operators: in event and in processing time, per key and namespace, deduplicated, part of keyed state.

After Apache Flink's `InternalTimerServiceImpl`: a timer is (timestamp, key, namespace); registering it twice is registering it once;
timers fire in order of time, those of one time in order of registration.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, ProcessingTimeService
from flowrun.api.state import KEY_GROUP_COLUMN
from flowrun.core.elements import MIN_TIMESTAMP
from flowrun.core.semantics import TimeDomain
from flowrun.errors import StateError
from flowrun.operators.first_timer import FirstTimer
from flowrun.operators.next_firing import show_next_firing
from flowrun.state.backend.objects import ChangeSet
from flowrun.state.key_groups import key_groups

NAMESPACE_COLUMN = "__namespace"
TIMESTAMP_COLUMN = "__timestamp"
DOMAIN_COLUMN = "__domain"

Key = tuple[Any, ...]


class Timer(NamedTuple):
    """A timer: due at `timestamp` (ms) for a key (the values of its key columns) and a namespace (e.g. a window, or None)."""

    timestamp: int
    key: Key
    namespace: Any


TimerCallback = Callable[[Timer], None]


class _TimerQueue:
    """Deduplicated timers of one domain, in order. Deleted ones stay in the heap until their turn, then are skipped."""

    def __init__(self, changes: ChangeSet | None) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._live: dict[Timer, int] = {}
        self._registered = 0
        self._changes = changes

    def __len__(self) -> int:
        return len(self._live)

    def add(self, timer: Timer) -> None:
        """Register once."""
        if timer not in self._live:
            self._live[timer] = self._registered
            heapq.heappush(self._heap, (timer.timestamp, self._registered, timer))
            self._registered += 1
            if self._changes is not None:
                self._changes.added(timer, True)

    def remove(self, timer: Timer) -> bool:
        """Forget a timer; False if it is not registered."""
        if self._live.pop(timer, None) is None:
            return False
        if self._changes is not None:
            self._changes.removed(timer)
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(t.timestamp, n, t) for t, n in self._live.items()]
            heapq.heapify(self._heap)
        return True

    def first(self) -> int | None:
        """When the next timer is due."""
        while self._heap:
            timestamp, number, timer = self._heap[0]
            if self._live.get(timer) == number:
                return timestamp
            heapq.heappop(self._heap)
        return None

    def glance(self) -> int | None:
        """When the next timer is due, for any thread; None if that is not known without changing anything."""
        heap = self._heap[:1]
        return heap[0][0] if heap and self._live.get(heap[0][2]) == heap[0][1] else None

    def pop_due(self, timestamp: int) -> Timer | None:
        """The next timer at or before `timestamp`, no longer registered."""
        first = self.first()
        if first is None or first > timestamp:
            return None
        timer = heapq.heappop(self._heap)[2]
        del self._live[timer]
        if self._changes is not None:
            self._changes.removed(timer)
        return timer

    def forget(self) -> None:
        """Remove all."""
        for timer in list(self._live):
            self.remove(timer)
        self._heap.clear()

    def timers(self) -> list[Timer]:
        """All timers, in the order in which they will fire."""
        return sorted(self._live, key=lambda t: (t.timestamp, self._live[t]))


class InternalTimerService:
    """The timers of one keyed operator in one subtask. Not thread-safe: processing-time timers run as mailbox mails.

    Args:
        key_schema: names and Arrow types of the key columns.
        namespace_type: Arrow type of the namespaces: `pa.null()` if there are none, `pa.int64()`, `pa.string()`, or a struct
            for tuples such as windows (start, end).
        processing_time: where processing-time timers wait.
        on_event_time: called for each due event-time timer; may register and delete timers.
        on_processing_time: the same for processing-time timers.
        changes: for each domain, receives the timers that come and go, for snapshots that write only these. Without it there is
            only `snapshot`, which writes all timers.
    """

    def __init__(
        self,
        key_schema: pa.Schema,
        namespace_type: pa.DataType,
        max_parallelism: int,
        processing_time: ProcessingTimeService,
        on_event_time: TimerCallback,
        on_processing_time: TimerCallback,
        changes: Mapping[TimeDomain, ChangeSet] | None = None,
    ) -> None:
        self._key_schema = key_schema
        self._namespace_type = namespace_type
        self._max_parallelism = max_parallelism
        self._processing_time = processing_time
        self._on_event_time = on_event_time
        self._on_processing_time = on_processing_time
        self._queues = {d: _TimerQueue(changes[d] if changes is not None else None) for d in TimeDomain}
        queue = self._queues[TimeDomain.PROCESSING]
        self._wait = FirstTimer(processing_time, queue.first, self._fire_processing_time)
        self.current_watermark = MIN_TIMESTAMP

    def count(self, domain: TimeDomain) -> int:
        """How many timers wait."""
        return len(self._queues[domain])

    def first(self, domain: TimeDomain) -> int | None:
        """When the next timer is due, ms; None: there is none."""
        return self._queues[domain].first()

    def show_next_firing(self, context: OperatorContext) -> None:
        """Show by gauges when the next timers are due."""
        for domain, queue in self._queues.items():
            show_next_firing(context, queue.glance, domain)

    @property
    def current_processing_time(self) -> int:
        """Processing time, ms."""
        return self._processing_time.now_ms()

    # ---- registering

    def register_event_time(self, timestamp: int, key: Key, namespace: Any = None) -> None:
        """Fire when the watermark reaches `timestamp`; with the next watermark if it already has."""
        self._queues[TimeDomain.EVENT].add(Timer(timestamp, key, namespace))

    def register_processing_time(self, timestamp: int, key: Key, namespace: Any = None) -> None:
        """Fire when processing time reaches `timestamp`."""
        self._queues[TimeDomain.PROCESSING].add(Timer(timestamp, key, namespace))
        self._wait.rearm()

    def delete_event_time(self, timestamp: int, key: Key, namespace: Any = None) -> None:
        """Forget an event-time timer, if it is registered."""
        self._queues[TimeDomain.EVENT].remove(Timer(timestamp, key, namespace))

    def delete_processing_time(self, timestamp: int, key: Key, namespace: Any = None) -> None:
        """Forget a processing-time timer, if it is registered."""
        self._queues[TimeDomain.PROCESSING].remove(Timer(timestamp, key, namespace))
        self._wait.rearm()

    def forget(self) -> None:
        """Forget all timers."""
        for queue in self._queues.values():
            queue.forget()

    # ---- firing

    def advance_watermark(self, timestamp: int) -> None:
        """Fire the event-time timers at or before the watermark, those that the callbacks register on the way too."""
        self.current_watermark = max(self.current_watermark, timestamp)
        queue = self._queues[TimeDomain.EVENT]
        while (timer := queue.pop_due(timestamp)) is not None:
            self._on_event_time(timer)

    def fire_pending_processing_time(self) -> None:
        """Fire the processing-time timers that wait now, in order, whatever the time; not those that they register."""
        queue = self._queues[TimeDomain.PROCESSING]
        with self._wait.firing():
            for timer in queue.timers():
                if queue.remove(timer):
                    self._on_processing_time(timer)

    def _fire_processing_time(self, timestamp: int) -> None:
        queue = self._queues[TimeDomain.PROCESSING]
        while (timer := queue.pop_due(timestamp)) is not None:
            self._on_processing_time(timer)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._wait.close()

    # ---- state

    @property
    def state_schema(self) -> pa.Schema:
        """Columns of the state table: key group, key columns, namespace, timestamp, domain."""
        return pa.schema(
            [
                pa.field(KEY_GROUP_COLUMN, pa.int32()),
                *self._key_schema,
                pa.field(NAMESPACE_COLUMN, self._namespace_type),
                pa.field(TIMESTAMP_COLUMN, pa.int64()),
                pa.field(DOMAIN_COLUMN, pa.string()),
            ]
        )

    def snapshot(self) -> pa.Table:
        """All timers as a keyed state table, event-time ones first, each in firing order."""
        timers = [(timer, domain.value) for domain, queue in self._queues.items() for timer in queue.timers()]
        keys = [pa.array([timer.key[i] for timer, _ in timers], field.type) for i, field in enumerate(self._key_schema)]
        groups = key_groups(keys, self._max_parallelism) if timers else np.zeros(0, np.int32)
        return pa.Table.from_arrays(
            [
                pa.array(groups),
                *keys,
                pa.array([_stored(timer.namespace, self._namespace_type) for timer, _ in timers], self._namespace_type),
                pa.array([timer.timestamp for timer, _ in timers], pa.int64()),
                pa.array([domain for _, domain in timers], pa.string()),
            ],
            schema=self.state_schema,
        )

    def restore(self, table: pa.Table) -> None:
        """Take back the timers of a state table, cut to this subtask's key groups; processing-time ones wait again.

        Raises:
            StateError: the table has other columns.
        """
        if not table.schema.equals(self.state_schema):
            raise StateError(
                f"timers have the columns {_columns_text(self.state_schema)}, the state has {_columns_text(table.schema)}",
                hint="keys or windows changed; start without this state, or restore with the former pipeline",
            )
        keys = zip(*(table[name].to_pylist() for name in self._key_schema.names), strict=True)
        namespaces = (_loaded(n) for n in table[NAMESPACE_COLUMN].to_pylist())
        rows = zip(table[TIMESTAMP_COLUMN].to_pylist(), keys, namespaces, strict=True)
        for row, domain in zip(rows, table[DOMAIN_COLUMN].to_pylist(), strict=True):
            self._queues[TimeDomain(domain)].add(Timer(*row))
        self._wait.rearm()


def _stored(namespace: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind) and namespace is not None:
        return {kind.field(i).name: namespace[i] for i in range(kind.num_fields)}
    return namespace


def _loaded(namespace: Any) -> Any:
    return tuple(namespace.values()) if isinstance(namespace, dict) else namespace


def _columns_text(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
