"""What the scheduler is told (events) and what it asks for (commands). Values only; times in epoch ms."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.messages import ResultPartitionId, TaskFailure, TaskUpdate
from flowrun.runtime.slot_messages import SlotAnswer, SlotRequest

# ---- events


@record
class StartJob:
    """Event: ask for slots and, once they are there, deploy everything that waits for no input."""


@record
class SlotRequestTimedOut:
    """Event: the time that the slots of `RequestSlots` were waited for is over; harmless if they are there.

    Attributes:
        number: as in the command.
        waited: how long, for people.
    """

    number: int
    waited: str


@record
class CancelJob:
    """Event: the user cancels."""


@record
class StopJob:
    """Event: the user stops: sources end early, results are committed. Amid a restart it is remembered for the new attempts."""

    drain: bool


@record
class WorkerLost:
    """Event: a worker process is gone, with everything that ran in it.

    Attributes:
        worker: its name, as in `AllocatedSlot`.
        reason: for people, a clause such as `worker w2 (process 4711) was killed by SIGKILL`.
        host_folder: where the blocking partitions that it had finished are still; empty: they are gone with it.
        is_reached: whether there is a worker that reads this folder.
    """

    worker: str
    reason: str
    host_folder: str = ""
    is_reached: bool = False


@record
class HostFolderFound:
    """Event: a worker has come that reads this folder; perhaps there was none before."""

    host_folder: str


@record
class HostFolderLost:
    """Event: the time of `AwaitHostFolder` is over, and no worker has come that reads the folder: what was kept there is gone."""

    host_folder: str


@record
class StopAwaited:
    """Event: somebody waits for the snapshot with which the job is to stop: a restart that is put off begins now."""


@record
class StopSnapshotCompleted:
    """Event: the snapshot with which the job is stopped exists: subtasks end now, and nothing is restarted any more."""


@record
class CheckpointCompleted:
    """Event: restarts go back to a newer checkpoint from now on."""


@record
class JobBroke:
    """Event: something of the job that is no subtask failed: an enumerator, a committer, too many checkpoints, a restore.

    All subtasks are restarted, if anything is.
    """

    error: BaseException
    operator: str | None = None


@record
class ResultsCommitted:
    """Event: what `CommitResults` asked for is done."""


@record
class CancelTimedOut:
    """Event: the subtasks of a `WatchCancellation` were given long enough to end; harmless if they have.

    Attributes:
        stuck: descriptions of those that did not.
        attempts: as in the command.
    """

    stuck: tuple[str, ...]
    attempts: tuple[str, ...]


@record
class RestartDue:
    """Event: the time that `RestartAt` named has come."""

    round: int


@record
class StateRestored:
    """Event: `RestoreState` is carried out; subtasks may be deployed. If it fails, send `JobBroke` instead.

    Attributes:
        round: as in the command.
        finished: subtasks that are finished in what was restored. A region of nothing else is left alone if it has finished in
            this process too; elsewhere they are deployed, to tell their consumers that there is no input any more.
    """

    round: int
    finished: frozenset[ExecutionVertexId] = frozenset()


Event = (
    StartJob
    | CancelJob
    | StopJob
    | StopAwaited
    | StopSnapshotCompleted
    | CheckpointCompleted
    | JobBroke
    | ResultsCommitted
    | CancelTimedOut
    | RestartDue
    | StateRestored
    | SlotRequestTimedOut
    | SlotAnswer
    | TaskUpdate
    | WorkerLost
    | HostFolderFound
    | HostFolderLost
)


# ---- commands


@record
class RequestSlots:
    """Command: ask for slots; send on what is answered, and `SlotRequestTimedOut` after the time that a job may wait.

    Attributes:
        number: of the bulk.
        requests: one a slot.
        instead_of: see `SlotRequestBulk`.
    """

    number: int
    requests: tuple[SlotRequest, ...]
    instead_of: tuple[str, ...] = ()


@record
class AwaitSlotsFurther:
    """Command: the slots of the `RequestSlots` with this number are waited for as long again before `SlotRequestTimedOut`."""

    number: int


@record
class WithdrawSlotRequest:
    """Command: the slots of the `RequestSlots` with this number are not needed any more."""

    number: int


@record
class ReleaseSlots:
    """Command: these slots are not needed any more. At the end of the job all are free, without a command."""

    allocation_ids: tuple[str, ...]


@record
class DeployTask:
    """Command: start a subtask. Ask `Scheduler.begin_deployment` first: the job may have failed meanwhile."""

    vertex: ExecutionVertexId
    attempt_id: str


@record
class AnnounceRunning:
    """Command: every subtask that waits for no input runs or has finished, for the first time since the start or a restart.

    In streaming mode these are all: checkpoints may begin.
    """


@record
class ReleasePartitions:
    """Command: delete blocking partitions that all their readers have read, or that are about to be written again."""

    partitions: tuple[ResultPartitionId, ...]


@record
class AwaitHostFolder:
    """Command: no worker is left that reads this folder. If none comes in the time that its replacement takes, send `HostFolderLost`."""

    host_folder: str


@record
class CancelTask:
    """Command: make a subtask end."""

    attempt_id: str


@record
class StopSource:
    """Command: make a source subtask end its input."""

    attempt_id: str
    drain: bool


@record
class WatchCancellation:
    """Command: send `CancelTimedOut` if any of these attempts is still alive after the time allowed."""

    attempts: tuple[str, ...]


@record
class InterruptJob:
    """Command: the job restarts or ends: give up checkpoints that are under way. `reason` is for those who asked for one.

    Comes before all other commands of its event, and again with each further failure that widens a restart.
    """

    reason: str


@record
class RestartAt:
    """Command: send `RestartDue` with this round at `time_ms`."""

    time_ms: int
    round: int


@record
class RestoreState:
    """Command: go back to the last completed checkpoint for these subtasks, or to the beginning if there is none.

    Their attempts are over; the others go on. Restore the enumerators of the sources among them (always with all their subtasks),
    abort what their sinks handed over and no checkpoint holds, re-commit what it holds; then send `StateRestored`.

    Attributes:
        round: to be sent back; one that has been overtaken by another failure is ignored.
        vertices: in topological order.
    """

    round: int
    vertices: tuple[ExecutionVertexId, ...]


@record
class CommitResults:
    """Command: every subtask finished; make what the sinks wrote visible, then send `ResultsCommitted`."""


@record
class EndJob:
    """Command: the job is over; `Scheduler.failures` says why, root cause first."""

    state: JobState


Command = (
    RequestSlots
    | AwaitSlotsFurther
    | WithdrawSlotRequest
    | ReleaseSlots
    | DeployTask
    | AnnounceRunning
    | ReleasePartitions
    | AwaitHostFolder
    | CancelTask
    | StopSource
    | WatchCancellation
    | InterruptJob
    | RestartAt
    | RestoreState
    | CommitResults
    | EndJob
)


@record
class LocatedFailure:
    """A failure and the subtask where it happened; None if it happened in the job master."""

    failure: TaskFailure
    vertex: ExecutionVertexId | None
