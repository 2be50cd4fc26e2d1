"""The contract of sinks: writers in every subtask, and a committer that makes pre-committed results visible.

Two-phase commit: `prepare_commit` at a barrier (or at the end) closes what was written and returns committables; they are
committed when the checkpoint is complete, or at the end of the job when checkpointing is off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from flowrun.api.metrics import MetricGroup
from flowrun.api.operator import ProcessingTimeService
from flowrun.api.source import Delivery, JsonValue
from flowrun.api.state import KeyGroupRange
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape


@record
class Committable:
    """Something written but not visible yet. `commit_id` is unique and persisted: committing it twice has no further effect."""

    commit_id: str
    payload: Mapping[str, JsonValue]


NO_KEY_GROUPS = KeyGroupRange(0, 0)
"""Of a writer that no rows are dealt out to by key."""


@record
class WriterContext:
    """What a writer knows of its subtask."""

    subtask: int
    parallelism: int
    attempt: str
    """Unique to this execution: temporary names contain it."""
    clock: Clock
    processing_time: ProcessingTimeService
    metrics: MetricGroup
    pause: Callable[[float], None]
    """Block the subtask for so many ms; raises JobCancelledError when the job is cancelled meanwhile."""
    owner: str = ""
    """Stays the same over restarts and resumptions of a job: temporary names contain it too, so that what a killed process left can
    be found. Empty: nobody will look for it."""
    operator_id: str = ""
    """Tells the sinks of a job apart; stable across runs."""
    key_groups: KeyGroupRange = NO_KEY_GROUPS
    """The key groups of this subtask: of the rows of a `KeyedSink`, whose key groups are these, it gets those."""
    identity: str = ""
    """Of a `KeyedSink`: names what it shows, stays the same for all that restores from its state, and is that of no other sink or run."""
    next_checkpoint_id: Callable[[], int] | None = None
    """The lowest number that a checkpoint or savepoint can have which knows rows that come now; asked from the subtask's thread. None:
    there never is one."""
    publishes_early: bool = False
    """Whether nothing ever asks for a commit but the end: no checkpoints, and unbounded. What is `rolled` is visible then."""
    staging: str = ""
    """Folder, as an absolute path or URI, in which rows can wait for their commit: it belongs to the job's checkpoints, and is seen by all
    its processes. Empty: the job takes no checkpoints, so nothing can wait for one."""


class SinkWriter(Protocol):
    """Writes in one subtask; all calls come from the subtask's thread."""

    def open(self) -> None:
        """Check that writing is possible; may block on I/O."""
        ...

    def write(self, batch: RecordBatch) -> None:
        """Write rows; may block on the outside system (that is back pressure)."""
        ...

    def write_watermark(self, timestamp_ms: int) -> None:
        """Event time reached by everything written so far."""
        ...

    def flush(self, end_of_input: bool) -> None:
        """Push out what is buffered (at-least-once sinks do their work here)."""
        ...

    def prepare_commit(self) -> Sequence[Committable]:
        """Close what was written since the last call; the committables are stored in the checkpoint."""
        ...

    def rolled(self) -> Sequence[Committable]:
        """Committables of parts that are already closed; asked after each write when checkpointing is off and the job is unbounded."""
        ...

    def close(self) -> None:
        """Release everything and discard what was never returned by `prepare_commit` or `rolled`; idempotent."""
        ...


class Committer(Protocol):
    """Makes committables visible or discards them; runs once a job."""

    def commit(self, committables: Sequence[Committable]) -> None:
        """Make visible, in order; idempotent under `commit_id`."""
        ...

    def abort(self, committables: Sequence[Committable]) -> None:
        """Discard; idempotent."""
        ...


@runtime_checkable
class HearsOfSubmission(Protocol):
    """A writer that is told when what it pre-committed goes to the committer, so that it can wait for a committer that is slow."""

    def submitted(self, committables: Sequence[Committable]) -> None:
        """Their checkpoint is complete, and the committer was asked to commit them; it need not have done so yet."""
        ...


@runtime_checkable
class LongCommitter(Protocol):
    """A committer that writes rows, and may take long: the job goes on meanwhile, and takes further checkpoints.

    Its methods are called from one thread at a time. A call must end by itself, however the outside system behaves.
    """

    commits_long: bool
    """True; False is that of any other committer."""


@runtime_checkable
class ClosableCommitter(Protocol):
    """A committer that holds something open between its calls, such as a connection."""

    def close(self) -> None:
        """The job has ended: let go of it. Idempotent."""
        ...


@runtime_checkable
class OrphanDiscarding(Protocol):
    """A committer that finds what killed writers left behind: written, but named by no committable."""

    def discard_orphans(self, owner: str, keep: Collection[str]) -> int:
        """Discard what writers of this owner left; gives how many pieces. Called before any writer of this owner is open.

        Args:
            owner: as in `WriterContext.owner`; not empty.
            keep: commit ids of everything that may still be committed.
        """
        ...


@runtime_checkable
class StartingAfresh(Protocol):
    """A sink that looks at what earlier runs left before a run from the beginning starts. Its committer is a `Replacing`."""

    def describe_start(self) -> str | None:
        """What such a run does with what is there, for people: `replaces 2 files`; None: nothing to say. Blocks on I/O."""
        ...

    def begin(self, run: str) -> None:
        """Check what is there, and note what the run is to replace. Nothing has run yet; blocks on I/O.

        Raises:
            SetupError: the run must not start.
        """
        ...


@runtime_checkable
class Replacing(Protocol):
    """A committer that can put what a run shows in the place of what was there before."""

    def replace_earlier(self, run: str) -> None:
        """The run shows something: remove what it was to replace; nothing happens if there is nothing, or it is done. Idempotent."""
        ...

    def keep_earlier(self, run: str) -> None:
        """The run ends and has shown nothing: what was there stays. Idempotent."""
        ...


@record
class CommittedPiece:
    """What a committable made visible, where writing its rows again would show them twice.

    Attributes:
        commit_id: of the committable.
        name: of the piece, for people: a path.
        is_there: whether it still is where it was committed; somebody may have moved or deleted it.
    """

    commit_id: str
    name: str
    is_there: bool


@runtime_checkable
class CommitReverting(Protocol):
    """A committer that can take back what it committed, for a job that goes back to an older checkpoint or savepoint."""

    def committed(self, committables: Sequence[Committable]) -> Sequence[CommittedPiece]:
        """The pieces that would be there twice. Not among them: what other outputs hold, and what is replaced when it is written again."""
        ...

    def revert(self, committables: Sequence[Committable]) -> None:
        """Take them back, whether they are visible yet or not, as if they had never been committed; idempotent, durable."""
        ...


@record
class ToldCommit:
    """What an output itself tells of something in it.

    Attributes:
        owner: whose it is: what `WriterContext.owner` begins with.
        checkpoint_id: `WriterContext.next_checkpoint_id` when its first row was written.
        committables: for `CommitReverting.revert`: what made it visible, then what goes with that.
    """

    owner: str
    checkpoint_id: int
    committables: tuple[Committable, ...]


@record
class OutputNote:
    """A note in an output; `place` is where it is, for messages."""

    place: str
    content: bytes


@runtime_checkable
class CommitTelling(CommitReverting, Protocol):
    """A committer whose output tells what was committed when, also where the job's record of that is gone. All methods block on I/O."""

    def told(self) -> Sequence[ToldCommit]:
        """All that is there and would be there twice if it was written again."""
        ...

    def notes(self) -> Sequence[OutputNote]:
        """What `leave_note` left."""
        ...

    def leave_note(self, content: bytes) -> None:
        """Leave a note for those who go back later; durable, hidden from whoever reads the output."""
        ...


class KeyedSinkWriter(SinkWriter, Protocol):
    """A writer that keeps rows by key: they are part of the job's state."""

    def restore(self, rows: pa.RecordBatch) -> None:
        """Take back rows of this subtask's key groups that `kept` gave, in their order; before `open`."""
        ...

    def kept(self) -> pa.RecordBatch:
        """The rows to keep, with the columns of the sink; immutable. Asked right after `prepare_commit`."""
        ...


@runtime_checkable
class KeyedSink(Protocol):
    """A sink whose writers keep rows by the table's primary key (`KeyedSinkWriter`); rows are dealt out to them by it."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Columns of the key; not empty. If it is, the sink keeps nothing, and is like any other."""
        ...

    @property
    def key_groups(self) -> int:
        """Into how many groups keys are dealt; also the most subtasks that the sink can have."""
        ...


class Sink(Protocol):
    """A picklable description of an output; what a sink transformation carries."""

    @property
    def schema(self) -> Schema:
        """Columns that writers expect."""
        ...

    @property
    def delivery(self) -> Delivery:
        """What the sink can promise when checkpoints are on."""
        ...

    def create_writer(self, context: WriterContext) -> SinkWriter: ...

    def create_committer(self) -> Committer | None:
        """None for sinks whose writes are visible at once."""
        ...


RowCheck = Callable[[pa.RecordBatch], None]
"""Raises DataError if a row of the batch cannot be written."""


@runtime_checkable
class RefusingSink(Protocol):
    """A sink that can say of rows, before it gets them, that it cannot write them: so they can be left out alone (`on_error`)."""

    def create_check(self) -> RowCheck | None:
        """What looks at rows, in one subtask; None: all can be written."""
        ...


@runtime_checkable
class ConditionalDelivery(Protocol):
    """A sink whose `delivery` rests on something that only the user can know."""

    @property
    def delivery_condition(self) -> str:
        """What it rests on, to be read behind the promise: `if the server …`; empty: nothing."""
        ...


@runtime_checkable
class DeclaresCommittables(Protocol):
    """A sink that says what the payload of its committables looks like: in state that is not so they are refused by name."""

    @property
    def committable_shape(self) -> Shape:
        """Of `Committable.payload`."""
        ...
