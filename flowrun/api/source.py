"""The contract of sources: an enumerator finds splits once a job, readers read them in every subtask.

A split is a resumable piece of input (a byte range of a file, a range of a sequence, a partition); it carries its own
position, so the list of splits that `SourceReader.snapshot` returns is all that a restart needs, at any parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol, runtime_checkable

from flowrun.api.metrics import MetricGroup
from flowrun.api.operator import InputStatus, ProcessingTimeService
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, listed, members, text

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "bounded"
    UNBOUNDED = "unbounded"


class Delivery(Enum):
    """What a source or sink can promise after a restart."""

    AT_MOST_ONCE = "at most once"
    AT_LEAST_ONCE = "at least once"
    EXACTLY_ONCE = "exactly once"


@record
class Split:
    """A piece of input. `split_id` is unique in the job; `position` (JSON values only) says where and how far it was read."""

    split_id: str
    position: Mapping[str, JsonValue]


@runtime_checkable
class KnowsRows(Protocol):
    """A source that can say about how many rows it has without reading them, so that joins can be ordered by it."""

    def estimated_rows(self) -> int | None:
        """Rows in all, the same for the same input; None: not known. Called when a pipeline is planned: it must not take long."""
        ...


class SourceOutput(Protocol):
    """Where a reader puts what it read."""

    def emit(self, columns: RecordBatch, split_id: str) -> None:
        """Rows of one split, in the split's order. `timestamps` may be None: the watermark strategy then supplies them."""
        ...

    def emit_watermark(self, timestamp_ms: int, split_id: str) -> None:
        """A watermark of the source's own, for sources that know their progress: Flink's `SupportsSourceWatermark`.

        Called in `poll`, between the rows of the split. Rows of the split that are emitted behind it with an event time at or below
        `timestamp_ms` are late; those before it are not. Which rows are late must follow from their positions in the split alone, not from
        how rows are cut into batches or which of their columns are read: so results are the same in whatever polls the split is read.
        One that is not above the last one of its split changes nothing. Over several splits the lowest counts, of those that are active;
        a split counts from its first row or watermark until `mark_idle`, or until the reader's `snapshot` does not name it any more. At
        the end of input the highest watermark comes by itself: a reader does not send it.

        A snapshot holds what each unfinished split has said last, beside its position: a reader that is restored goes on from the
        position and need not say it again. A watermark is ignored where the table's own strategy makes them from the rows.
        """
        ...

    def advance(self, timestamp_ms: int, split_id: str) -> None:
        """No row follows in the split with an event time at or below `timestamp_ms`, whatever the table's strategy makes of its rows.

        As `emit_watermark`, but it counts in any table that has event time.
        """
        ...

    def mark_idle(self, split_id: str) -> None:
        """Nothing is expected from this split for now; its next row makes it active again."""
        ...


@record
class RejectedRecord:
    """A record that cannot be decoded, and where it comes from.

    Attributes:
        file: the file, or `topic/partition`.
        offset: of its first byte in the (decompressed) file, or of the message.
        reason: what is wrong, in words for users.
        raw: the record; of a message its value, None if it has none.
        shown: the bytes that cannot be read, if they are not `raw`: of a message its key.
        topic: of a message, as are the others; its `timestamp_ms` is in ms since 1970.
        headers: names and values, in order; a name may come twice.
    """

    file: str
    offset: int
    reason: str
    raw: bytes | None
    shown: bytes | None = None
    topic: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@record
class ReaderContext:
    """What a reader knows of its subtask."""

    subtask: int
    parallelism: int
    batch_rows: int
    """The number of rows to aim for in one batch."""
    clock: Clock
    metrics: MetricGroup
    request_split: Callable[[], None]
    """Ask the enumerator for a split; the answer comes as `add_splits` or `notify_no_more_splits`. Non-blocking."""
    notify_available: Callable[[], None]
    """Thread-safe: say that `poll` may have something again after NOTHING_AVAILABLE."""
    processing_time: ProcessingTimeService
    """For readers that pace or poll: a callback that calls `notify_available`."""
    reject: Callable[[RejectedRecord], None] | None = None
    """Takes a record that cannot be decoded; called in `poll`, in order. What is rejected is kept with the positions that `snapshot`
    gives, exactly once. None: the reader does as its options say."""


class SourceReader(Protocol):
    """Reads splits in one subtask. All calls come from the subtask's thread and must not block for long."""

    def start(self) -> None:
        """Begin; usually calls `context.request_split()` unless splits were restored with `add_splits` before."""
        ...

    def poll(self, output: SourceOutput) -> InputStatus:
        """Emit at most about one batch. NOTHING_AVAILABLE promises a later `context.notify_available()` or new splits."""
        ...

    def add_splits(self, splits: Sequence[Split]) -> None:
        """More to read, in order."""
        ...

    def notify_no_more_splits(self) -> None:
        """The enumerator has nothing more: END_OF_INPUT once all splits are read."""
        ...

    def snapshot(self) -> Sequence[Split]:
        """The unfinished splits with the positions reached by the rows emitted so far."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The positions of this snapshot are durable; acknowledge to outside systems here."""
        ...

    def close(self) -> None:
        """Release everything; idempotent."""
        ...


@runtime_checkable
class KnowsCheckpoints(Protocol):
    """A reader that acknowledges exactly what a checkpoint holds, however many are under way: it is told which snapshot is whose."""

    def notify_snapshot(self, checkpoint_id: int) -> None:
        """What `snapshot` gave last is part of this checkpoint. Called right after it, before any other call."""
        ...


@runtime_checkable
class ReadsSplitsTogether(Protocol):
    """A reader that reads all its splits at the same time, such as partitions of a message queue.

    Each of them holds event time back from when the reader is given it, until its first row or until it is idle: which of them comes
    first with its rows must not make those of the others late. Splits of other readers count from their first row.
    """

    reads_splits_together: bool
    """True; False is that of any other reader."""


class SplitEnumerator(Protocol):
    """Finds and hands out splits, once a job, on the job master's thread."""

    def start(self) -> None:
        """Look at the outside for the first time; may block on I/O."""
        ...

    def next_split(self, subtask: int) -> Split | None:
        """The next split for a reader that asks; None if there is none now (see `exhausted`)."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether no split will ever come again."""
        ...

    @property
    def discovery_interval_ms(self) -> int | None:
        """How often `discover` is to be called; None means never (bounded sources)."""
        ...

    def discover(self) -> None:
        """Look for new splits; waiting readers are served afterwards. May block on I/O."""
        ...

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Splits of a failed reader, or restored splits at another parallelism; they are handed out first."""
        ...

    def snapshot(self) -> JsonValue:
        """What `Source.create_enumerator` needs to go on: splits not handed out, what was already discovered."""
        ...

    def close(self) -> None:
        """Release everything; idempotent."""
        ...


@runtime_checkable
class LooksAgain(Protocol):
    """An enumerator of a source that ends, which may find more where a new run restores from an older one's state."""

    def look_again(self) -> Sequence[str]:
        """Find what came since the snapshot; gives its names.

        Called once, behind `start`, where a new run restores from a checkpoint or savepoint; never where subtasks of one run go back
        to one: what a run reads is settled when it begins. Of a source that had come to its end the enumerator is asked only to say
        what is not read any more. May block on I/O.
        """
        ...


@runtime_checkable
class HandsOutAtOnce(Protocol):
    """An enumerator that waits for its readers, but can do without them where a batch or backfill reads each split by itself."""

    def take_before(self, until_ms: int | None) -> Sequence[Split]:
        """All splits that may have rows with an event time before `until_ms`, ms; None: all. They count as handed out.

        Raises:
            ConnectorError: there is no end to them.
        """
        ...


@runtime_checkable
class DividedByTime(Protocol):
    """A source whose parts have the rows of ranges of event time, one after the other: it may end before a time, though it does not end."""

    @property
    def is_divided(self) -> bool:
        """Whether it is: if not, any part may have rows of any time."""
        ...

    def before(self, until_ms: int) -> Source:
        """The source without the parts whose rows are not before `until_ms`, ms."""
        ...


class Source(Protocol):
    """A picklable description of an input; what a source transformation carries."""

    @property
    def schema(self) -> Schema:
        """Columns of the rows that readers emit."""
        ...

    @property
    def boundedness(self) -> Boundedness: ...

    @property
    def delivery(self) -> Delivery:
        """What the source can promise on restart."""
        ...

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """The enumerator of a job, fresh or from its snapshot."""
        ...

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """The reader of one subtask."""
        ...


@runtime_checkable
class DeclaresSourceState(Protocol):
    """A source that says what its JSON in checkpoints looks like: what is not so is refused by name before the source sees it.

    Anybody who can write state can write JSON of any form. A source that does not declare it gets whatever is there.
    """

    @property
    def enumerator_shape(self) -> Shape:
        """Of what `SplitEnumerator.snapshot` gives; null, for none, is always right."""
        ...

    @property
    def position_shape(self) -> Shape:
        """Of `Split.position`."""
        ...


def split_list(position: Shape) -> Shape:
    """The shape of splits in an enumerator's state, as `[{"id": …, "position": …}, …]`.

    >>> split_list(members({}))([{"id": "a", "position": {}}], "enumerator")
    """
    return listed(members({"id": text, "position": position}))
