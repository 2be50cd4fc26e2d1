"""The rows of one subtask that are under way, with the watermarks between them.

After Apache Flink's `OrderedStreamElementQueue` and `UnorderedStreamElementQueue`: in order, an entry leaves when all before it have left;
without order, when everything before the last watermark in front of it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from flowrun.core.elements import RecordBatch, Watermark, WatermarkStatus

TimeEvent = Watermark | WatermarkStatus
"""What no row may overtake, and what may overtake no row."""


@dataclass(slots=True, eq=False)
class Entry:
    """One row, or a batch of rows, that the function was called with.

    Attributes:
        batch: what `position` and `length` say where it lies in.
        row: the row as the function gets it; None for functions on batches.
        time: event time of the row, ms.
        kind: change kind of the row; None on streams of inserts.
        attempt: number of the call, from 1.
        call: what is under way for it.
        is_late: its time is up; what `timeout` gives counts, and no call is made again.
        is_done: whether all there is to send is known.
        outcome: what is to be sent; None: nothing.
        parts: halves that it was divided into, as a call with all its rows failed.
        whole: what it is a half of.
        segment: of a queue without order: where it waits.
    """

    batch: RecordBatch
    position: int
    length: int = 1
    row: dict[str, Any] | None = None
    time: int | None = None
    kind: int | None = None
    attempt: int = 0
    call: Any = None
    is_late: bool = False
    is_done: bool = False
    outcome: Any = None
    parts: tuple[Entry, ...] = ()
    whole: Entry | None = None
    segment: Segment | None = None

    @property
    def rows(self) -> RecordBatch:
        """Its rows."""
        return self.batch.slice(self.position, self.length)

    def leaves(self) -> Iterator[Entry]:
        """Itself, or its undivided parts, in order."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


@dataclass(slots=True, eq=False)
class Segment:
    """The entries between two watermarks: those that wait for an answer, in their order, and those that have one, in the order of those."""

    waiting: dict[int, Entry] = field(default_factory=dict)
    done: list[Entry] = field(default_factory=list)


class InFlightQueue(Protocol):
    """Entries and time events in the order in which they came."""

    @property
    def entries(self) -> int:
        """How many entries there are, finished ones that have not left included."""
        ...

    def add(self, entry: Entry) -> None:
        """An entry comes."""
        ...

    def add_event(self, event: TimeEvent) -> None:
        """A time event comes."""
        ...

    def finished(self, entry: Entry) -> None:
        """An entry is done."""
        ...

    def take_ready(self) -> Iterator[Entry | TimeEvent]:
        """What may leave now, in order."""
        ...

    def elements(self) -> Iterator[Entry | TimeEvent]:
        """Everything that is there."""
        ...


class OrderedQueue:
    """Entries leave in the order in which they came."""

    def __init__(self) -> None:
        self._queue: deque[Entry | TimeEvent] = deque()
        self.entries = 0

    def add(self, entry: Entry) -> None:
        """At the end."""
        self._queue.append(entry)
        self.entries += 1

    def add_event(self, event: TimeEvent) -> None:
        """At the end."""
        self._queue.append(event)

    def finished(self, entry: Entry) -> None:
        """The entry says so itself."""

    def take_ready(self) -> Iterator[Entry | TimeEvent]:
        """The finished entries and events at the front."""
        queue = self._queue
        while queue:
            first = queue[0]
            if isinstance(first, Entry):
                if not first.is_done:
                    return
                self.entries -= 1
            yield queue.popleft()

    def elements(self) -> Iterator[Entry | TimeEvent]:
        """From front to end."""
        return iter(self._queue)


class UnorderedQueue:
    """Entries leave as they are done, but not beyond a time event."""

    def __init__(self) -> None:
        self._last = Segment()
        self._queue: deque[Segment | TimeEvent] = deque([self._last])
        self._numbers = 0
        self.entries = 0

    def add(self, entry: Entry) -> None:
        """To the entries behind the last event."""
        entry.segment = self._last
        self._last.waiting[id(entry)] = entry
        self.entries += 1

    def add_event(self, event: TimeEvent) -> None:
        """Behind all entries."""
        self._last = Segment()
        self._queue += (event, self._last)

    def finished(self, entry: Entry) -> None:
        """It may leave when its segment is the first."""
        assert entry.segment is not None
        del entry.segment.waiting[id(entry)]
        entry.segment.done.append(entry)

    def take_ready(self) -> Iterator[Entry | TimeEvent]:
        """The finished entries of the first segment; the event behind it and so on, if none waits in it."""
        queue = self._queue
        while True:
            first = queue[0]
            if isinstance(first, Segment):
                done, first.done = first.done, []
                self.entries -= len(done)
                yield from done
                if first.waiting or len(queue) == 1:
                    return
                queue.popleft()
            else:
                yield queue.popleft()  # type: ignore[misc]

    def elements(self) -> Iterator[Entry | TimeEvent]:
        """From front to end; what is done leaves no trace, as it has left already."""
        for element in self._queue:
            if isinstance(element, Segment):
                yield from element.done
                yield from element.waiting.values()
            else:
                yield element
