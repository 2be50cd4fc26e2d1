"""Everything that a job master and the executors of its tasks say to each other.

All messages are frozen values. Gateways are thread-safe and never block: a call puts a message into the receiver's mailbox. In one
process they are called directly; between processes the same calls travel as messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from flowrun.api.sink import Committable
from flowrun.api.source import Split
from flowrun.api.state import OperatorState
from flowrun.core.elements import CheckpointBarrier
from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionVertexId, PartitionId
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.state.checkpoints import KeptElement, KeyedTableState, SubtaskSnapshot


@record
class ResultPartitionId:
    """What one attempt of a producer writes for one edge of the job."""

    partition: PartitionId
    attempt_id: str


@record
class PartitionLocation:
    """Where a subtask finds one partition that it reads.

    Attributes:
        partition: what is read.
        attempt_id: the execution of its producer that writes it, or wrote it.
        worker: the process that this execution was deployed to, as `AllocatedSlot.worker` names it; or one that reads its files.
        address: of that process's data server; empty: it has none, or nothing is known of it.
        host_folder: where the files of a blocking partition outlive the process that writes them; empty: they do not.
        only_files: the process that wrote it is gone.
    """

    partition: PartitionId
    attempt_id: str
    worker: str
    address: str = ""
    host_folder: str = ""
    only_files: bool = False


LOCAL_WORKER = "local"
"""The name of the job master's own process as a worker: whoever tells people of subtasks names no process then."""


@record
class TaskDeployment:
    """What an executor needs to run one subtask of a job whose execution graph it has.

    Attributes:
        job_id: the run of the job.
        attempt_id: of this execution.
        vertex: the subtask.
        worker: the process that it is for, as `AllocatedSlot.worker` names it.
        inputs: every partition that its gates read, once.
        restored: what to restore from; None: a fresh start.
        lineage: of the job's checkpoints; temporary names of sinks begin with it. Empty if the job has no state.
        first_checkpoint_id: the lowest number that a checkpoint or savepoint can have in which the subtask takes part.
    """

    job_id: str
    attempt_id: str
    vertex: ExecutionVertexId
    worker: str = ""
    inputs: tuple[PartitionLocation, ...] = ()
    restored: RestoredTask | None = None
    lineage: str = ""
    first_checkpoint_id: int = 1


@record
class RestoredTask:
    """What a subtask restores from. Reading the rows is the task's own work, on its own thread.

    Attributes:
        checkpoint_id: that is restored.
        root: where the paths of state files start.
        operators: operator id → keyed tables (of the old subtasks that may hold this subtask's key groups, in their order) and
            operator state (already redistributed).
        in_flight: elements to process before anything else, by channel of an old consumer subtask; see `RestoredChannel`.
        finished: the vertex had come to its end: run no operator; pass on the end of time and of input.
    """

    checkpoint_id: int
    root: str
    operators: Mapping[str, RestoredOperator] = field(default_factory=dict)
    in_flight: tuple[RestoredChannel, ...] = ()
    finished: bool = False


@record
class RestoredOperator:
    """The state of one operator for one new subtask."""

    keyed: Mapping[str, tuple[KeyedTableState, ...]] = field(default_factory=dict)
    operator: Mapping[str, OperatorState] = field(default_factory=dict)


@record
class RestoredChannel:
    """What was in flight on one channel of an old consumer subtask, with what that channel's valve had seen.

    Channels without elements are there too, since their watermarks count. Rows that are not of this subtask's key groups are
    dropped by the task (`filter_keys`), as other new subtasks get the same channel. Of an exchange that is inside the subtask's chain now,
    `operator` is the position of its reader in the chain; else it is 0, and `gate` says where the rows come from.
    """

    gate: int
    producer: int
    old_consumer: int
    watermark: int
    idle: bool
    elements: tuple[KeptElement, ...]
    filter_keys: bool
    aligned: bool = True
    """As in `ChannelProgress`."""
    operator: int = 0


@record
class TaskFailure:
    """Why a subtask failed. `operator` is None if no operator is to blame; `secondary` came up while cleaning up."""

    error: BaseException
    operator: str | None = None
    phase: str | None = None
    secondary: tuple[str, ...] = ()


@record
class TaskUpdate:
    """A subtask reached a state."""

    vertex: ExecutionVertexId
    attempt_id: str
    state: ExecutionState
    failure: TaskFailure | None = None


@record
class SplitRequest:
    """A reader asks for a split."""

    vertex: ExecutionVertexId
    attempt_id: str


@record
class CommittablesReport:
    """A sink hands over committables.

    Attributes:
        vertex: the subtask.
        attempt_id: of its execution.
        operator_id: of the sink.
        committables: what it wrote.
        at_end: they are of `finish` and wait for the whole job to end well.
        after_snapshot: number of the last checkpoint or savepoint that the subtask took or was restored from; 0: there was none.
    """

    vertex: ExecutionVertexId
    attempt_id: str
    operator_id: str
    committables: tuple[Committable, ...]
    at_end: bool
    after_snapshot: int = 0


@record
class CheckpointAcknowledgement:
    """A subtask has written its snapshot of a checkpoint, or says in `declined` why it has not."""

    vertex: ExecutionVertexId
    attempt_id: str
    checkpoint_id: int
    snapshot: SubtaskSnapshot | None
    declined: str | None = None


class JobMasterGateway(Protocol):
    """What tasks call."""

    def acknowledge_checkpoint(self, acknowledgement: CheckpointAcknowledgement) -> None:
        """A subtask has written its snapshot, or declines. Comes from an upload thread."""
        ...

    def update_task(self, update: TaskUpdate) -> None:
        """A subtask reached a state; the last one of a subtask comes when its operators are closed."""
        ...

    def request_split(self, request: SplitRequest) -> None:
        """A source subtask asks for a split."""
        ...

    def report_committables(self, report: CommittablesReport) -> None:
        """A sink subtask wrote something that is not visible yet."""
        ...


class TaskExecutorGateway(Protocol):
    """What the job master calls. Calls for unknown attempts are ignored: the attempt may have ended meanwhile."""

    def deploy(self, deployment: TaskDeployment) -> None:
        """Create a subtask and start its thread."""
        ...

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None:
        """Delete blocking partitions: nobody reads them any more."""
        ...

    def cancel(self, attempt_id: str) -> None:
        """Wake a subtask out of every wait and have it end."""
        ...

    def stop(self, attempt_id: str, drain: bool) -> None:
        """Have a source subtask end its input early."""
        ...

    def add_splits(self, attempt_id: str, splits: Sequence[Split]) -> None:
        """Answer of a split request."""
        ...

    def notify_no_more_splits(self, attempt_id: str) -> None:
        """Answer of a split request when the enumerator is exhausted."""
        ...

    def sample_rows(self, attempt_id: str, vertex: ExecutionVertexId, exchange: str, for_ms: int) -> None:
        """Have a subtask look at the rows that it sends to an exchange, for so long; 0: not any more."""
        ...

    def trigger_checkpoint(self, attempt_id: str, barrier: CheckpointBarrier) -> None:
        """Have a source subtask take its snapshot and send the barrier. Ordered with `add_splits`."""
        ...

    def complete_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """The checkpoint exists. A subtask that stopped at its barrier ends now."""
        ...

    def abort_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        """The checkpoint will never exist; remembered if its barrier has not come. A subtask that stopped at its barrier goes on."""
        ...
