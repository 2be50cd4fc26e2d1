"""Workers as the job manager sees them: they offer slots, run counting subtasks, exchange rows with each other, and misbehave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from flowrun.api.source import Split
from flowrun.core.elements import CheckpointBarrier
from flowrun.errors import ClusterError, ConnectionOverError
from flowrun.runtime.cluster_messages import (
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    JobClosed,
    JobOpening,
    ResourceManagerGateway,
    WorkerGateway,
    WorkerRegistration,
    job_master_endpoint,
    tasks_endpoint,
)
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.messages import (
    CheckpointAcknowledgement,
    JobMasterGateway,
    ResultPartitionId,
    TaskDeployment,
    TaskExecutorGateway,
    TaskFailure,
    TaskUpdate,
)
from flowrun.runtime.rpc.heartbeats import Heartbeats
from tests.runtime.simulation.network import Connection, Wire
from tests.runtime.simulation.tasks import ChannelId, Item, Task
from tests.runtime.simulation.virtual_time import Process

if TYPE_CHECKING:
    from tests.runtime.simulation.cluster import Cluster

PATIENCE_MS = 10_000
"""How long a reader waits for a partition that is not there yet."""


class Worker:
    """One worker process.

    Args:
        cluster: that it is in.
        name: that it registers under.
        slots: that it offers.
        connection: its end of the connection to the job manager.
    """

    def __init__(self, cluster: Cluster, name: str, slots: int, process: Process, connection: Connection) -> None:
        self.cluster = cluster
        self.name = name
        self.slots = slots
        self.process = process
        self.connection = connection
        self.address = f"{name}@{cluster.number_of_workers}"
        self.tasks: dict[str, Task] = {}
        """Attempt → subtask; ended ones, too, until the job is closed."""
        self.jobs: dict[str, HostedJob] = {}
        self._written: dict[ChannelId, list[Item]] = {}
        """What nobody has asked for yet."""
        self._readers: dict[ChannelId, tuple[Worker, str]] = {}
        self._wires: dict[str, Wire] = {}
        """Address of another worker → what is sent there."""
        connection.serve(TASK_EXECUTOR, WorkerGateway, self)
        self._heartbeats = Heartbeats(connection, process.timers, process.clock)  # type: ignore[arg-type]
        connection.on_close(lambda _: self.close())

    def start(self) -> None:
        """Offer its slots."""
        self._heartbeats.start()
        offer = WorkerRegistration(self.name, 1, "here", self.address, self.slots)
        self.connection.gateway(ResourceManagerGateway, RESOURCE_MANAGER).register_worker(offer)

    def close(self) -> None:
        """The job manager is gone, or the process dies."""
        self.process.die()
        self.tasks.clear()
        self.cluster.worker_is_gone(self)

    @property
    def is_known(self) -> bool:
        """Whether the job manager counts on it."""
        return any(known.connection is self.connection.other for known in self.cluster.manager.workers)

    @property
    def living(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.is_alive]

    # What the job manager calls.

    def open_job(self, opening: JobOpening) -> None:
        self.jobs[opening.job_id] = hosted = HostedJob(self, opening.job_id)
        self.connection.serve(tasks_endpoint(opening.job_id), TaskExecutorGateway, hosted)

    def describe_stuck(self, job_id: str, attempt_ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{a} is stuck" for a in attempt_ids if a in self.tasks and self.tasks[a].is_alive)

    def close_job(self, job_id: str, stuck: tuple[str, ...]) -> JobClosed:
        self.connection.withdraw(tasks_endpoint(job_id))
        for attempt, task in list(self.tasks.items()):
            if attempt.startswith(job_id) and attempt not in stuck:
                assert not task.is_alive, f"{attempt} is {task.state.name} at the end of its job"
                del self.tasks[attempt]
        return JobClosed()

    # What subtasks do.

    def send(self, channel: ChannelId, item: Item) -> None:
        reader = self._readers.get(channel)
        if reader is None:
            self._written.setdefault(channel, []).append(item)
        else:
            self._pass_on(channel, reader, item)

    def update(self, task: Task, state: ExecutionState, failure: TaskFailure | None = None) -> None:
        self._tell(task.attempt, lambda m: m.update_task(TaskUpdate(task.vertex.id, task.attempt, state, failure)))

    def acknowledge(self, acknowledgement: CheckpointAcknowledgement) -> None:
        self._tell(acknowledgement.attempt_id, lambda m: m.acknowledge_checkpoint(acknowledgement))

    def _tell(self, attempt: str, call: Callable[[JobMasterGateway], None]) -> None:
        if self.connection.is_closed:
            return
        job_id = attempt.partition("_")[0]
        try:
            call(self.connection.gateway(JobMasterGateway, job_master_endpoint(job_id)))
        except ConnectionOverError:
            return

    # Rows between workers.

    def wire_to(self, other: Worker) -> Wire:
        wire = self._wires.get(other.address)
        if wire is None:
            wire = self._wires[other.address] = Wire(other.process, self.cluster.delay_ms)
            if self.cluster.is_cut(self, other):
                wire.cut()
        return wire

    def ask_for(self, channel: ChannelId, address: str, attempt: str) -> None:
        """Ask another worker, or this one, for what a subtask reads."""
        producer = self.cluster.by_address.get(address)
        if producer is None or producer.process.is_dead:
            self.process.soon(lambda: self.lose_input(attempt, channel))
            return
        self.wire_to(producer).send(lambda: producer.asked_for(channel, self, attempt, PATIENCE_MS))

    def asked_for(self, channel: ChannelId, reader: Worker, attempt: str, patience_ms: int) -> None:
        if channel.producer_attempt not in self.tasks:
            if patience_ms <= 0:
                self.wire_to(reader).send(partial(reader.lose_input, attempt, channel))
            else:
                self.process.after(500, lambda: self.asked_for(channel, reader, attempt, patience_ms - 500))
            return
        self._readers[channel] = reader, attempt
        for item in self._written.pop(channel, ()):
            self._pass_on(channel, (reader, attempt), item)

    def lose_input(self, attempt: str, channel: ChannelId) -> None:
        task = self.tasks.get(attempt)
        if task is not None:
            task.fail(ClusterError(f"{channel.partition} cannot be read any more"))

    def _pass_on(self, channel: ChannelId, reader: tuple[Worker, str], item: Item) -> None:
        worker, attempt = reader
        self.wire_to(worker).send(lambda: worker.arrived(channel, attempt, item))

    def arrived(self, channel: ChannelId, attempt: str, item: Item) -> None:
        task = self.tasks.get(attempt)
        if task is not None:
            task.receive(channel, item)

    def peer_died(self, other: Worker) -> None:
        """Connections to another worker are reset: who reads from there fails."""
        for task in self.living:
            if any(c.producer_attempt in other.known_attempts for c in task.channels):
                task.fail(ClusterError(f"the connection to {other.address} was lost"))

    @property
    def known_attempts(self) -> set[str]:
        return {a for job in self.jobs.values() for a in job.deployed}


class HostedJob:
    """The subtasks of one job in one worker: a `TaskExecutorGateway`."""

    def __init__(self, worker: Worker, job_id: str) -> None:
        self._worker = worker
        self._job = worker.cluster.jobs[job_id]
        self.deployed: set[str] = set()

    def deploy(self, deployment: TaskDeployment) -> None:
        worker, cluster = self._worker, self._worker.cluster
        assert deployment.worker == worker.name
        vertex = self._job.graph.vertex(deployment.vertex)
        counted = self._job.restored(deployment, worker)
        for attempt, task in list(worker.tasks.items()):
            if task.vertex is vertex:
                assert not task.is_alive, f"{attempt} still runs while {deployment.attempt_id} is deployed"
                del worker.tasks[attempt]
        if cluster.refuses_deployment():
            failure = TaskFailure(OSError("no buffers"), phase="deployment")
            update = TaskUpdate(deployment.vertex, deployment.attempt_id, ExecutionState.FAILED, failure)
            worker._tell(deployment.attempt_id, lambda m: m.update_task(update))
            return
        task = Task(worker, deployment, vertex, counted, self._job.records, cluster.pace_ms)
        worker.tasks[deployment.attempt_id] = task
        self.deployed.add(deployment.attempt_id)
        cluster.check_slots_of(worker)
        addresses = {location.attempt_id: location.address for location in deployment.inputs}
        for channel in task.channels:
            worker.ask_for(channel, addresses[channel.producer_attempt], deployment.attempt_id)
        task.start()

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None: ...

    def cancel(self, attempt_id: str) -> None:
        self._with(attempt_id, Task.cancel)

    def stop(self, attempt_id: str, drain: bool) -> None:
        self._with(attempt_id, Task.stop)

    def add_splits(self, attempt_id: str, splits: Sequence[Split]) -> None: ...

    def notify_no_more_splits(self, attempt_id: str) -> None: ...

    def trigger_checkpoint(self, attempt_id: str, barrier: CheckpointBarrier) -> None:
        self._with(attempt_id, lambda task: task.trigger(barrier))

    def complete_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        self._with(attempt_id, lambda task: task.complete(checkpoint_id))

    def abort_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        self._with(attempt_id, lambda task: task.abort(checkpoint_id))

    def _with(self, attempt_id: str, call: Callable[[Task], None]) -> None:
        task = self._worker.tasks.get(attempt_id)
        if task is not None and task.is_alive:
            call(task)
