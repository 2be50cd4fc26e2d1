"""Input gates: all channels of one input of a subtask, read fairly and coalesced.

Batches that are ready are concatenated up to the wanted batch size, over channels too: a batch that the producer split for its
consumers must not stay in small pieces downstream. Rows that have watermarks between them are given by channel, whose watermarks these are.
Order holds a channel; events are never overtaken and never overtake (barriers that
overtake did so before, in the queue of the channel: it is then read next). Only watermarks that may wait, each of which would end a
batch, are given behind the rows that are there already, and of each channel only the last.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Protocol, TypeVar

from flowrun.core.elements import EndOfInput, Event, RecordBatch, Watermark, concat_batches
from flowrun.core.record import record
from flowrun.runtime.network.channel import InputChannel
from flowrun.runtime.network.subpartition import Control, InFlightElement


@record
class GateEvent:
    """An event with the channel (position in the gate) that it came from, and what it overtook there; see `Control`."""

    channel: int
    event: Event
    overtaken: Sequence[InFlightElement] = ()


@record
class GateRows:
    """Rows of one channel (position in the gate)."""

    channel: int
    rows: RecordBatch


G = TypeVar("G", bound=GateRows | GateEvent)


class InputGate(Protocol):
    """What a task reads. `poll`, `block` and `resume` are for the task's thread."""

    @property
    def channels(self) -> int:
        """Number of channels."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether every channel has ended."""
        ...

    @property
    def has_urgent(self) -> bool:
        """Whether something has overtaken what was queued in a channel and was not given yet. Any thread."""
        ...

    def request_partitions(self) -> None:
        """Connect all channels."""
        ...

    def set_listener(self, listener: Callable[[], None]) -> None:
        """`listener` is called, from any thread, when something came after `poll` gave None, and when something overtook."""
        ...

    def poll(self) -> RecordBatch | GateRows | GateEvent | None:
        """Rows or an event, without waiting; None if there is nothing now. Rows with watermarks between them are given as `GateRows`."""
        ...

    def poll_channel(self) -> GateRows | GateEvent | None:
        """As `poll`, but rows of one channel at a time, with its number: for the time when rows in flight are recorded."""
        ...

    def block(self, channel: int) -> None:
        """Leave a channel unread until `resume` (barrier alignment). What was already taken from it is still given."""
        ...

    def resume(self, channel: int) -> None:
        """Read a blocked channel again."""
        ...

    def release(self) -> None:
        """Stop reading and free all channels. Idempotent."""
        ...


class SingleInputGate:
    """The channels of one job edge.

    Args:
        channels: in the order of their numbers.
        batch_rows: wanted at once.
        free_credit: gives the slots of the gate back, at its release; called perhaps several times.
        watermarks_may_wait: see `flowrun.graph.execution_graph.InputGate`.
        releases_ended: let go of a channel once its end is given, which its producer may wait for; what blocks may be read again.
    """

    def __init__(
        self,
        channels: Sequence[InputChannel],
        batch_rows: int,
        free_credit: Callable[[], None] = lambda: None,
        *,
        watermarks_may_wait: bool = False,
        releases_ended: bool = False,
    ) -> None:
        self._channels = tuple(channels)
        self._free_credit = free_credit
        self._batch_rows = batch_rows
        self._watermarks_may_wait = watermarks_may_wait
        self._releases_ended = releases_ended
        self._lock = threading.Lock()
        self._ready: deque[int] = deque()
        self._is_ready = [False] * len(self._channels)
        self._blocked = [False] * len(self._channels)
        self._armed = False
        self._listener: Callable[[], None] | None = None
        self._held: deque[GateRows | GateEvent] = deque()
        """Taken from their channels, not given yet."""
        self._in_hand: list[InputChannel] = []
        """Channels whose rows the task has, or which are held for it."""
        self._ended = 0
        self._urgent: set[int] = set()

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self._channels)

    @property
    def is_finished(self) -> bool:
        """Whether every channel has ended."""
        return self._ended == len(self._channels)

    @property
    def has_urgent(self) -> bool:
        """Whether the channel that is read next was put there by something that overtook."""
        return bool(self._urgent)

    def set_listener(self, listener: Callable[[], None]) -> None:
        """Set who is told that there is something again."""
        self._listener = listener

    def request_partitions(self) -> None:
        """Connect all channels. Those that hold only events are read first: what ended before must not hold event time back."""
        for index, channel in enumerate(self._channels):
            channel.request(partial(self._enqueue, index), partial(self._enqueue_first, index))
        with self._lock:
            self._ready = deque(sorted(self._ready, key=lambda index: self._channels[index].holds_rows))

    def poll(self) -> RecordBatch | GateRows | GateEvent | None:
        """Rows of one or several channels, or one event."""
        if self._held:
            return self._poll_held()
        self._recycle()
        batches: list[RecordBatch] = []
        channels: list[int] = []
        waiting: dict[int, GateEvent] = {}  # the last watermark of each channel
        rows = 0
        # Below half of the wanted size one more channel is asked; above it, copying costs more than it saves.
        while 2 * rows < self._batch_rows:
            index = self._next_ready(arm=not batches)
            if index is None:
                break
            element = self._channels[index].poll(self._batch_rows - rows)
            if element is None:
                continue
            if element.more:
                self._enqueue(index)
            if isinstance(element, Control):
                event = GateEvent(index, element.event, element.overtaken)
                if self._watermarks_may_wait and isinstance(element.event, Watermark) and batches:
                    waiting[index] = event
                    continue
                self._held.extend(waiting.values())
                waiting.clear()
                self._held.append(event)
                break
            self._in_hand.append(self._channels[index])
            if any(b.watermarks is not None for b in element.batches):
                rows_of_channel = GateRows(
                    index, self._first_run(list(element.batches), [index] * len(element.batches))
                )
                self._held.appendleft(rows_of_channel)
                break
            batches += element.batches
            channels += [index] * len(element.batches)
            rows = sum(b.num_rows for b in batches)
        self._held.extend(waiting.values())
        if batches:
            return batches[0] if len(batches) == 1 else self._first_run(batches, channels)
        return self._poll_held() if self._held else None

    def poll_channel(self) -> GateRows | GateEvent | None:
        """Rows of one channel, or one event."""
        if self._held:
            return self._given(self._held.popleft())
        self._recycle()
        while (index := self._next_ready(arm=True)) is not None:
            element = self._channels[index].poll(self._batch_rows)
            if element is None:
                continue
            if element.more:
                self._enqueue(index)
            if isinstance(element, Control):
                return self._given(GateEvent(index, element.event, element.overtaken))
            self._in_hand.append(self._channels[index])
            first = self._first_run(list(element.batches), [index] * len(element.batches))
            return GateRows(index, first)
        return None

    def block(self, channel: int) -> None:
        """Leave a channel unread."""
        with self._lock:
            self._blocked[channel] = True

    def resume(self, channel: int) -> None:
        """Read a channel again, whatever came meanwhile."""
        with self._lock:
            self._blocked[channel] = False
        self._enqueue(channel)

    def release(self) -> None:
        """Free all channels."""
        for channel in self._channels:
            channel.release()
        self._free_credit()

    def _recycle(self) -> None:
        """The task asks for more: it has processed all that it was given."""
        if self._in_hand:
            for channel in self._in_hand:
                channel.recycle()
            self._in_hand.clear()

    def _poll_held(self) -> RecordBatch | GateRows | GateEvent:
        held = self._held.popleft()
        if isinstance(held, GateEvent):
            return self._given(held)
        if held.rows.watermarks is not None:
            return held
        batches = [held.rows]
        while self._held:
            following = self._held[0]
            if isinstance(following, GateEvent) or following.rows.watermarks is not None:
                break
            if (following.rows.timestamps is None) != (batches[0].timestamps is None):
                break
            self._held.popleft()
            batches.append(following.rows)
        return concat_batches(batches)

    def _first_run(self, batches: list[RecordBatch], channels: list[int]) -> RecordBatch:
        """The first batches as one, as far as all or none of them have event times; the rest is held, each under its channel."""
        timeless = batches[0].timestamps is None
        count = next((i for i, b in enumerate(batches) if (b.timestamps is None) != timeless), len(batches))
        if count < len(batches):
            rest = [GateRows(c, b) for c, b in zip(channels[count:], batches[count:], strict=True)]
            self._held.extendleft(reversed(rest))
        return concat_batches(batches[:count])

    def _given(self, element: G) -> G:
        if isinstance(element, GateEvent) and isinstance(element.event, EndOfInput):
            self._ended += 1
            if self._releases_ended:
                self._channels[element.channel].release()
        return element

    def _enqueue(self, index: int) -> None:
        with self._lock:
            if self._is_ready[index]:
                return
            self._is_ready[index] = True
            self._ready.append(index)
            armed, self._armed = self._armed, False
        if armed and self._listener is not None:
            self._listener()

    def _enqueue_first(self, index: int) -> None:
        """The channel is read next, wherever it was in the queue."""
        with self._lock:
            if self._is_ready[index]:
                self._ready.remove(index)
            self._is_ready[index] = True
            self._ready.appendleft(index)
            self._urgent.add(index)
            self._armed = False
        if self._listener is not None:
            self._listener()

    def _next_ready(self, *, arm: bool) -> int | None:
        """The channel whose turn it is; if there is none and `arm`, the listener is told of the next one."""
        with self._lock:
            while self._ready:
                index = self._ready.popleft()
                self._is_ready[index] = False
                self._urgent.discard(index)
                if not self._blocked[index]:
                    return index
            self._armed = arm
            return None


class UnionInputGate:
    """Several gates read as one: a union. Channels are numbered through in the order of the members, which take turns."""

    def __init__(self, members: Sequence[InputGate]) -> None:
        self._members = tuple(members)
        self._starts = [0, *accumulate(m.channels for m in members)]
        self._turn = 0

    @property
    def channels(self) -> int:
        """Number of channels of all members."""
        return self._starts[-1]

    @property
    def is_finished(self) -> bool:
        """Whether every channel of every member has ended."""
        return all(m.is_finished for m in self._members)

    @property
    def has_urgent(self) -> bool:
        """Whether one of the members has something urgent."""
        return any(member.has_urgent for member in self._members)

    def set_listener(self, listener: Callable[[], None]) -> None:
        """Set who is told that a member has something again."""
        for member in self._members:
            member.set_listener(listener)

    def request_partitions(self) -> None:
        """Connect all channels of all members."""
        for member in self._members:
            member.request_partitions()

    def poll(self) -> RecordBatch | GateRows | GateEvent | None:
        """What the next member in turn has. None arms every member's listener."""
        for _ in self._members:
            index = self._turn
            self._turn = (index + 1) % len(self._members)
            element = self._members[index].poll()
            if element is not None:
                return element if isinstance(element, RecordBatch) else self._numbered(index, element)
        return None

    def poll_channel(self) -> GateRows | GateEvent | None:
        """What one channel of the next member in turn has."""
        for _ in self._members:
            index = self._turn
            self._turn = (index + 1) % len(self._members)
            element = self._members[index].poll_channel()
            if element is not None:
                return self._numbered(index, element)
        return None

    def block(self, channel: int) -> None:
        """Leave a channel unread."""
        member, inner = self._locate(channel)
        member.block(inner)

    def resume(self, channel: int) -> None:
        """Read a channel again."""
        member, inner = self._locate(channel)
        member.resume(inner)

    def release(self) -> None:
        """Free all members."""
        for member in self._members:
            member.release()

    def _numbered(self, member: int, element: GateRows | GateEvent) -> GateRows | GateEvent:
        """The element of a member under the number that its channel has here."""
        return replace(element, channel=self._starts[member] + element.channel)

    def _locate(self, channel: int) -> tuple[InputGate, int]:
        index = next(i for i, stop in enumerate(self._starts[1:]) if channel < stop)
        return self._members[index], channel - self._starts[index]
