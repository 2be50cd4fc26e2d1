"""The subtasks of one job as the job master reaches them: deployment and notices. Used by the job master's thread only."""

from __future__ import annotations

from typing import Protocol

from flowrun.core.elements import CheckpointBarrier
from flowrun.core.record import record
from flowrun.errors import InternalError
from flowrun.graph.execution_graph import Channel, ExecutionGraph, ExecutionVertexId
from flowrun.runtime.jobmaster.execution import Executions
from flowrun.runtime.jobmaster.source_coordinator import SplitAnswer
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.messages import PartitionLocation, RestoredTask, TaskDeployment, TaskExecutorGateway

_TOLD = frozenset({ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING})
"""Those that are cancelled need to be told nothing."""


@record
class WorkerPlace:
    """Where what a worker has written is read.

    Attributes:
        worker: that gives it: this one, or another that reads its files.
        address: of that one's data server; empty: it has none, or nobody is there.
        host_folder: where its blocking partitions outlive it; empty: they do not.
        is_gone: whether the worker itself is not there any more.
    """

    worker: str
    address: str = ""
    host_folder: str = ""
    is_gone: bool = False


class WorkerPlaces(Protocol):
    """Knows the workers. Thread-safe."""

    def place_of(self, worker: str) -> WorkerPlace:
        """Where what a worker has written is read now."""
        ...

    def reaches(self, host_folder: str) -> bool:
        """Whether a worker is there that reads a folder."""
        ...


class OneProcess:
    """`WorkerPlaces` of a job all of whose subtasks run in this process."""

    def place_of(self, worker: str) -> WorkerPlace:
        """Here."""
        return WorkerPlace(worker)

    def reaches(self, host_folder: str) -> bool:
        """There are none."""
        return False


class JobTasks:
    """Speaks to the executor.

    Args:
        graph: of the job.
        job_id: the run.
        lineage: of its checkpoints.
        executions: who runs now.
        places: knows where workers are.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        job_id: str,
        lineage: str,
        executions: Executions,
        places: WorkerPlaces,
    ) -> None:
        self._graph = graph
        self._job_id = job_id
        self._lineage = lineage
        self._executions = executions
        self._places = places
        self._executor: TaskExecutorGateway | None = None

    def connect(self, executor: TaskExecutorGateway) -> None:
        """Set who runs the subtasks; before anything else."""
        self._executor = executor

    @property
    def executor(self) -> TaskExecutorGateway:
        """Who runs the subtasks."""
        assert self._executor is not None
        return self._executor

    def deploy(
        self, vertex_id: ExecutionVertexId, attempt_id: str, restored: RestoredTask | None, first_checkpoint_id: int
    ) -> None:
        """Start a subtask, from `restored` if that is given, to take part in checkpoints with that number and higher ones.

        Raises what the executor raises.
        """
        vertex, worker = self._graph.vertex(vertex_id), self._executions.current(vertex_id).worker
        inputs = tuple(self._location(channel) for gate in vertex.gates for channel in gate.channels)
        self.executor.deploy(
            TaskDeployment(
                self._job_id, attempt_id, vertex_id, worker or "", inputs, restored, self._lineage, first_checkpoint_id
            )
        )

    def _location(self, channel: Channel) -> PartitionLocation:
        """Where a partition is: its producer was deployed before, as it comes first in topological order."""
        producer = self._executions.current(channel.producer)
        if producer.worker is None:
            raise InternalError(
                f"partition {channel.partition} is to be read before its producer {channel.producer} is deployed"
            )
        place = self._places.place_of(producer.worker)
        only_files = place.is_gone and bool(place.host_folder)
        return PartitionLocation(
            channel.partition, producer.attempt_id, place.worker, place.address, place.host_folder, only_files
        )

    def reaches(self, host_folder: str) -> bool:
        """Whether a worker is there that reads a folder."""
        return self._places.reaches(host_folder)

    def send_split(self, answer: SplitAnswer) -> None:
        """Answer a reader."""
        if answer.split is None:
            self.executor.notify_no_more_splits(answer.attempt_id)
        else:
            self.executor.add_splits(answer.attempt_id, (answer.split,))

    def sample_rows(self, exchange: str, for_ms: int) -> None:
        """Have every running subtask that writes to an exchange look at the rows."""
        for execution in self._executions:
            partitions = self._graph.vertex(execution.vertex).partitions
            if execution.state in _TOLD and any(p.id.data_set_id == exchange for p in partitions):
                self.executor.sample_rows(execution.attempt_id, execution.vertex, exchange, for_ms)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Have every running source subtask take its snapshot."""
        for execution in self._executions:
            if execution.state is ExecutionState.RUNNING and not self._graph.vertex(execution.vertex).gates:
                self.executor.trigger_checkpoint(execution.attempt_id, barrier)

    def complete_checkpoint(self, checkpoint_id: int) -> None:
        """Tell every subtask that runs."""
        for execution in self._executions:
            if execution.state in _TOLD:
                self.executor.complete_checkpoint(execution.attempt_id, checkpoint_id)

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        """Tell every subtask that runs."""
        for execution in self._executions:
            if execution.state in _TOLD:
                self.executor.abort_checkpoint(execution.attempt_id, checkpoint_id)
