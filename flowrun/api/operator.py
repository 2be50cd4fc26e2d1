"""The contract between a task and the operators in its chain.

Life of an operator, all calls from the one thread of its subtask:
`setup → initialize_state → open → (process_* | prepare_snapshot, snapshot_state | notify_*)* → end_input(each input) → finish → close`.
`close` is always called, after an error or a cancel too; nothing else is called after a failure.

An exception in `prepare_snapshot` (before it emitted anything) or in `snapshot_state` only declines the checkpoint: the operator must be
able to go on. When a job is stopped with draining, `end_input` and `finish` come before the last `snapshot_state`, and no
`prepare_snapshot`, as `finish` has flushed everything. `notify_*` may come until `close`. At a barrier that stops the job timers and
`execute` wait until its checkpoint is complete (then only `close` follows, without `end_input` and `finish` unless drained) or aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from flowrun.api.metrics import MetricGroup
from flowrun.api.state import KeyGroupRange, OperatorSnapshot
from flowrun.core.arrays import Integers
from flowrun.core.clock import Clock
from flowrun.core.elements import LatencyMarker, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.selected_rows import SelectedRows
from flowrun.errors import InternalError


class ChainingStrategy(Enum):
    """Whether an operator may join the task of its input (ALWAYS), only start a chain (HEAD), or stand alone (NEVER)."""

    ALWAYS = "always"
    HEAD = "head"
    NEVER = "never"


@record
class OutputTag:
    """Names a side output; its schema is that of the rows sent to it."""

    name: str
    schema: Schema


class Output(Protocol):
    """Where an operator sends what it produces. `emit` may block under back pressure; it raises when the job is cancelled."""

    def emit(self, batch: RecordBatch) -> None:
        """Send rows to the main output; empty batches are allowed and dropped."""
        ...

    def emit_side(self, tag: OutputTag, batch: RecordBatch) -> None:
        """Send rows to a side output; dropped if nobody reads it."""
        ...

    def emit_watermark(self, watermark: Watermark) -> None:
        """Send a watermark to every output, side outputs too."""
        ...

    def emit_status(self, status: WatermarkStatus) -> None:
        """Send an idleness change to every output."""
        ...

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Pass on a latency marker."""
        ...


class TimerHandle(Protocol):
    """A registered processing-time callback."""

    def cancel(self) -> None:
        """Forget the callback if it has not run."""
        ...


class ProcessingTimeService(Protocol):
    """Processing time and callbacks, which run as mails in the subtask's own mailbox: never concurrently with `process_*`."""

    def now_ms(self) -> int:
        """Current processing time, ms since the epoch."""
        ...

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> TimerHandle:
        """Call `callback(timestamp_ms)` once processing time reaches `timestamp_ms`; at once-soon if it already has."""
        ...


class RowTimes(Protocol):
    """The times by which windows of a time zone place rows: what clocks on the wall there show."""

    def times(self, instants: Integers) -> Integers:
        """Local time of each instant, ms."""
        ...

    def now_ms(self) -> int:
        """The local time now, which goes back where clocks are set back."""
        ...

    def last_instant(self, local: int) -> int:
        """The last instant at which clocks show a time, ms."""
        ...


def _cannot_pause(ms: float) -> None:
    raise InternalError(f"this runtime cannot pause a subtask (for {ms} ms)")


@record
class OperatorContext:
    """What an operator knows of its surroundings. `name` and `uid` are the user's; `operator_id` is stable across runs."""

    operator_id: str
    name: str
    uid: str | None
    subtask: int
    parallelism: int
    max_parallelism: int
    key_groups: KeyGroupRange
    clock: Clock
    processing_time: ProcessingTimeService
    metrics: MetricGroup
    execute: Callable[[Callable[[], None]], None]
    """Thread-safe: run a callable later on the subtask's thread (a mailbox mail)."""
    object_reuse: bool = True
    unbounded: bool = False
    """Whether any source of the job is unbounded."""
    checkpointing: bool = False
    pause: Callable[[float], None] = _cannot_pause
    """Block the subtask for so many ms of the clock; raises JobCancelledError when the job is cancelled meanwhile."""
    job_id: str = ""
    """Unique to this run of the job: the name under which operators of one job meet inside a process (iterations)."""
    owner: str = ""
    """The lineage of the job's checkpoints, which restarts and resumptions keep: see `WriterContext.owner`."""
    first_checkpoint_id: int = 1
    """The lowest number that a checkpoint or savepoint can have in which this operator takes part."""
    staging: str = ""
    """See `WriterContext.staging`."""
    exact_watermarks: bool = False
    """Whether this operator, or one behind it, takes rows and watermarks in their exact order: then batches say where watermarks are."""
    exact_behind: bool = False
    """Whether an operator behind this one does."""
    sorted_inputs: bool = False
    """Batch mode: rows come key after key, and `EndsKeys.end_keys` says that those so far are complete."""
    speaks_for_all: bool = True
    """Of what all subtasks see alike, as rows of a broadcast stream, only the subtask of which this is true counts and tells."""
    wall_clock: RowTimes | None = None
    """Of an operator that goes by local time: watermarks and processing time are local then, and rows' times are to be asked here."""


class StreamOperator(Protocol):
    """An operator with one or more inputs (a source operator has none and is driven by `SourceOperator.emit_next`)."""

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Receive context and output; no work, no I/O."""
        ...

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back what was snapshotted, already cut to this subtask's key groups; None on a fresh start."""
        ...

    def open(self) -> None:
        """Acquire what processing needs; may block on I/O. Called from the chain's tail to its head."""
        ...

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Process at least one row. Rows arrive in channel order; batch borders mean nothing."""
        ...

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        """Event time of this input advanced (strictly): fire what is due, then forward the operator's own watermark."""
        ...

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """This input became idle or active."""
        ...

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        """Forward a probe without delay; sinks record it."""
        ...

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Flush what must not be part of the snapshot (pre-aggregates); runs before the barrier goes downstream, may emit."""
        ...

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """What to remember; references only, must take well under a millisecond. Must not emit."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Checkpoints up to and including this id are durable: commit what was pending."""
        ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """This checkpoint will never complete; later ones cover it."""
        ...

    def end_input(self, input_index: int = 0) -> None:
        """No more rows from this input; MAX watermark came before unless the job was stopped without drain."""
        ...

    def finish(self) -> None:
        """All inputs ended: emit what is left (not on cancel). Called from head to tail."""
        ...

    def close(self) -> None:
        """Release everything; idempotent, must not emit, must not raise because of an earlier failure."""
        ...


class InputStatus(Enum):
    """What a source can do next."""

    MORE_AVAILABLE = "more"
    NOTHING_AVAILABLE = "nothing"
    END_OF_INPUT = "end"


class SourceOperator(StreamOperator, Protocol):
    """An operator without inputs, polled by its task."""

    def emit_next(self) -> InputStatus:
        """Emit at most about one batch without waiting. After NOTHING_AVAILABLE the task waits for the availability callback."""
        ...

    def set_availability_listener(self, listener: Callable[[], None]) -> None:
        """`listener` is called, from any thread, when `emit_next` may have something again."""
        ...

    def stop(self, drain: bool) -> None:
        """End the input early, as if it were bounded; with `drain` the MAX watermark follows."""
        ...


class BatchForm(Enum):
    """What becomes of a keyed operator in batch mode.

    NONE: it runs as in streaming mode, and keeps the state of all keys until its input ends.
    BY_KEYS: its inputs are sorted by key. Rows of some keys, all there are of them, have an operator of their own, which comes to its end
        before the next one begins. For operators that do nothing but follow rows and watermarks, and whose keys know nothing of each other.
    ENDS_KEYS: its inputs are sorted by key, and it forgets keys itself (`EndsKeys`).
    """

    NONE = "none"
    BY_KEYS = "by keys"
    ENDS_KEYS = "ends keys"


class OperatorSpec:
    """What is said of an operator, by value: the base of the records that lowering makes and a job graph carries.

    A subclass is a frozen record of plain data (numbers, texts, schemas, other records; functions by their names or as the expressions that
    they are compiled from), so that a job can be compared, sent and described without the code that runs it. What makes an operator
    of it is named in `flowrun.operators.implementations`. Where it has keyed state it has the methods of `DescribesState` as well.

    The name of the class is part of the structural hashes of the operators around it, and so of checkpoints: it does not change.
    """

    __slots__ = ()

    chaining: ClassVar[ChainingStrategy] = ChainingStrategy.ALWAYS
    """How the operator may be chained."""

    batch_form: ClassVar[BatchForm] = BatchForm.NONE
    """What becomes of it in batch mode, if it has keys."""

    uses_event_time: ClassVar[bool] = True
    """Whether what it sends depends on watermarks: those for which it does not may get them behind rows that were sent later."""


class OperatorFactory(Protocol):
    """A recipe of your own for one operator per subtask, which makes it itself. It must pickle; an operator made of it is not shared."""

    @property
    def chaining(self) -> ChainingStrategy:
        """How the operator may be chained."""
        ...

    def create(self) -> StreamOperator:
        """A new operator; called once a subtask."""
        ...


OperatorRecipe: TypeAlias = OperatorSpec | OperatorFactory
"""What a job graph carries of an operator; `flowrun.operators.implementations.create_operator` makes one of it."""


@runtime_checkable
class TakesExactWatermarks(Protocol):
    """A recipe whose operators may give other results if watermarks come a few rows later: those with timers of users."""

    @property
    def takes_exact_watermarks(self) -> bool:
        """Whether this one does. Then sources, and all operators on the way, say where watermarks are between the rows."""
        ...


def takes_exact_watermarks(recipe: OperatorRecipe) -> bool:
    """Whether the operators of a recipe take rows and watermarks in their exact order."""
    return isinstance(recipe, TakesExactWatermarks) and recipe.takes_exact_watermarks


def uses_event_time(recipe: OperatorRecipe) -> bool:
    """Whether what the operators of a recipe send may depend on where watermarks are among the rows; of a factory of one's own, always."""
    return recipe.uses_event_time if isinstance(recipe, OperatorSpec) else True


def batch_form(recipe: OperatorRecipe) -> BatchForm:
    """What becomes of the operators of a recipe in batch mode; a factory of one's own may say so as specs do."""
    form = getattr(recipe, "batch_form", BatchForm.NONE)
    return form if isinstance(form, BatchForm) else BatchForm.NONE


@runtime_checkable
class EndsKeys(Protocol):
    """An operator that gets its rows key after key (`OperatorContext.sorted_inputs`)."""

    def end_keys(self) -> None:
        """No more rows come of the keys that had rows so far: for them event time ends, and so does what is kept of them."""
        ...


@runtime_checkable
class GivesOneRow(Protocol):
    """A recipe whose operators keep one row for each key of their results up to date."""

    @property
    def result_keys(self) -> tuple[int, ...]:
        """Positions of the key's columns in the results."""
        ...


@runtime_checkable
class TakesSelections(Protocol):
    """An output that takes rows as a filter has chosen them, and gathers them for those of its targets that need that."""

    def emit_selected(self, selected: SelectedRows) -> None:
        """Send rows to the main output."""
        ...


@runtime_checkable
class ProcessesSelections(Protocol):
    """An operator with one input that takes rows as a filter has chosen them; others are given the rows."""

    def process_selected(self, selected: SelectedRows) -> None:
        """As `process_batch`."""
        ...


@runtime_checkable
class PassesWatermarks(Protocol):
    """An operator whose `process_batch` takes batches with watermarks between the rows; others get the rows between them one after the
    other, and the watermarks, if exact order matters, else only the rows.
    """

    @property
    def passes_watermarks(self) -> bool:
        """Whether it does."""
        ...


@runtime_checkable
class WorksAside(Protocol):
    """An operator whose rows may be under way somewhere else when `process_batch` returns. What comes of them it learns by mails
    (`OperatorContext.execute`) and callbacks in processing time.
    """

    @property
    def accepts_rows(self) -> bool:
        """Whether it has room for more: while it has none, the subtask reads no input, but barriers that overtake, and runs mails."""
        ...

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way: before that the subtask does not finish its operators. One whose input comes from an operator that
        finishes may still have to wait in `finish`, where no mails run.
        """
        ...


@runtime_checkable
class DescribesState(Protocol):
    """A recipe whose operators have keyed state: lets a pipeline be compared with a savepoint without running it."""

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Name of each keyed table that an operator may write → its columns, as in what is restored (`OperatorSnapshot.keyed`).

        A restored table that lacks columns which are nullable here gets them, all NULL, before the operator sees it; any other
        difference is refused.
        """
        ...


StateMigrations: TypeAlias = Mapping[str, Callable[[pa.Table], pa.Table]]
"""Name of a keyed table → what makes rows of its columns of rows that hold other values."""


@runtime_checkable
class MigratesState(Protocol):
    """A recipe whose operators can read state of other types: the metadata of their `state_schemas` says which (`migrations_of`)."""

    def state_migrations(self) -> StateMigrations:
        """The migrations; called where state is restored that needs them. May import the user's code."""
        ...
