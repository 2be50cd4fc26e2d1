"""A simulated cluster around the real resource manager, slot pool and job masters, and what must hold of it at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from checkpoint_fakes import MemoryStorage, opened

from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.core.resources import SlotSettings
from flowrun.errors import FlowrunError, StateError
from flowrun.graph.execution_graph import ExecutionVertex, ExecutionVertexId, build_execution_graph
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.cluster.job_workers import JobWorkers, one_by_one
from flowrun.runtime.cluster.resource_manager import ResourceManager
from flowrun.runtime.cluster_messages import JobOpening
from flowrun.runtime.job_status import JobResult
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.jobmaster.slots import share_slots
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.local_cluster import JobSurroundings, start_job
from flowrun.runtime.messages import CheckpointAcknowledgement, TaskDeployment, TaskFailure, TaskUpdate
from flowrun.runtime.metric_reports import MetricReports
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.rpc.heartbeats import Heartbeats
from flowrun.runtime.slot_messages import AllocatedSlot
from flowrun.state.checkpoints import OperatorSubtaskState, SubtaskSnapshot
from tests.runtime.simulation.network import connect
from tests.runtime.simulation.tasks import Counted, Records
from tests.runtime.simulation.virtual_time import Process, VirtualThreads, VirtualTime
from tests.runtime.simulation.workers import Worker


class Job:
    """One job: its job master, and what really happened to it."""

    def __init__(self, cluster: Cluster, job_id: str, job_graph: JobGraph, source_rows: int | None) -> None:
        self.cluster = cluster
        self.job_id = job_id
        self.job_graph = job_graph
        self.records = Records(source_rows)
        self.graph = build_execution_graph(job_graph)
        self.slots = len(share_slots(self.graph))
        self.storage = MemoryStorage()
        self.result: JobResult | FlowrunError | None = None
        self.cancelled = False
        self._checked: set[int] = set()
        clock, settings = cluster.manager_process.clock, job_graph.settings
        state = opened(job_graph, self.storage, lineage=job_id, checkpoints=settings.checkpoint is not None)
        self.storage.before = dict.fromkeys(("begin", "finish"), self._touch_disk)
        metrics = MetricRegistry()
        workers = _WatchedWorkers(
            self, JobOpening(job_id, job_graph.name, None), cluster.manager, MetricReports(metrics, clock)
        )
        surroundings = JobSurroundings(
            clock,
            cluster.manager_process.timers,
            cluster.manager.slots,
            metrics,
            cluster.manager,
            VirtualThreads(cluster.manager_process, 10),
        )
        cluster.jobs[job_id] = self
        self.master: JobMaster = start_job(state, self.graph, workers, surroundings, job_id=job_id)

    def look(self) -> bool:
        """Whether it is over."""
        if self.result is None:
            try:
                self.result = self.master.wait(0)
            except FlowrunError as error:
                self.result = error
        return self.result is not None

    @property
    def waits_in_vain(self) -> bool:
        """Whether it needs more slots than there are, or comes after one that does: who comes first is served first."""
        needs = {b.job_id: self.cluster.jobs[b.job_id].slots for b in self.cluster.manager.slots._pool.waiting}
        status = self.master.status()
        waits = status.waits_for is not None or (
            status.state is JobState.RESTARTING and f"'{status.name}' needs" in (status.last_failure or "")
        )  # it waited too long, and will wait again
        return max(self.slots, *needs.values() if waits else (), 0) > self.cluster.total_slots

    def restored(self, deployment: TaskDeployment, worker: Worker) -> Counted:
        """A subtask goes back to a checkpoint that exists. One that the job manager has given up may hear of it when it is gone."""
        restored = deployment.restored
        if restored is not None and worker.is_known:
            assert restored.checkpoint_id in self.storage.checkpoints, (
                "it goes back to a checkpoint that does not exist"
            )
        if restored is None:
            return Counted()
        (state,) = restored.operators.values()
        if "whose" in state.operator and len(whose := state.operator["whose"].rows):
            known = self.records.acknowledged[restored.checkpoint_id, whose["attempt"][0].as_py()]
        else:
            known = self.records.finished[self.finished_attempt(deployment.vertex)]  # before that checkpoint
        return Counted(known.rows, known.sent)

    def finished_attempt(self, vertex: ExecutionVertexId) -> str:
        """The last attempt that came to its end as far as the job master knows."""
        history = self.master._scheduler.executions.history(vertex)
        return next(e.attempt_id for e in reversed(history) if e.state is ExecutionState.FINISHED)

    def check_checkpoint(self, number: int) -> None:
        """A checkpoint is complete: every subtask has acknowledged it, or had come to its end."""
        if number in self._checked:
            return
        self._checked.add(number)
        executions = self.master._scheduler.executions
        for vertex in self.graph.all_vertices():
            attempts = [e.attempt_id for e in executions.history(vertex.id)]
            known = any((number, a) in self.records.acknowledged or a in self.records.finished for a in attempts)
            assert known, f"{self.job_id}: checkpoint {number} exists without {vertex.id}"

    def check_end(self) -> None:
        """The job is over: that it finished means that every row was counted once; and restarts are bounded."""
        restart = self.job_graph.settings.restart
        restarts = self.master.status().restarts
        if restart is not None and restart.strategy == "fixed_delay":
            assert restarts <= restart.attempts
        if restart is None and self.job_graph.settings.checkpoint is None:
            assert restarts == 0
        if not (isinstance(self.result, JobResult) and self.result.state is JobState.FINISHED):
            assert self.cancelled or isinstance(self.result, FlowrunError)
            return
        read: Counter[str] = Counter()
        for vertex in self.graph.all_vertices():
            read[vertex.id.vertex_id] += self.records.finished[self.finished_attempt(vertex.id)].rows
        for job_vertex in self.job_graph.vertices:
            if job_vertex.inputs:
                assert read[job_vertex.vertex_id] == sum(read[edge.source] for edge in job_vertex.inputs), read
            elif not self.records.stopped:
                assert read[job_vertex.vertex_id] == job_vertex.parallelism * (self.records.source_rows or 0)

    def _touch_disk(self, checkpoint_id: int) -> None:
        if self.cluster.disk_fails():
            raise StateError("the disk is full")


class _WatchedWorkers(JobWorkers):
    """Looks at what a job master deploys."""

    def __init__(self, job: Job, *arguments: object) -> None:
        super().__init__(*arguments, tell_all=one_by_one)  # type: ignore[arg-type]
        self._job = job

    def deploy(self, deployment: TaskDeployment) -> None:
        if self._job.cluster.looks_at_deployments:
            self._check_slots()
        super().deploy(deployment)

    def _check_slots(self) -> None:
        held = [
            key
            for key, slot in self._job.cluster.manager.slots.held.items()
            if self._job.cluster.is_of(slot, self._job)
        ]
        gone = self._job.cluster.lost_unheard(self._job)
        assert len(held) + gone >= self._job.slots, (
            f"{self._job.job_id} is deployed with {len(held)} of {self._job.slots} slots"
        )

    def complete_checkpoint(self, attempt_id: str, checkpoint_id: int) -> None:
        self._job.check_checkpoint(checkpoint_id)
        super().complete_checkpoint(attempt_id, checkpoint_id)


class Cluster:
    """A job manager, workers, and what happens to them.

    Args:
        seed: decides everything.
        delay_ms: how long a message takes at most.
        pace_ms: how long a subtask takes for a row at most.
    """

    def __init__(self, seed: int, *, delay_ms: float = 2.0, pace_ms: float = 20.0, trouble: float = 0.0) -> None:
        self.time = VirtualTime(seed)
        self.delay_ms = delay_ms
        self.pace_ms = pace_ms
        self.trouble = trouble
        """Chance of each deployment, and each file, to fail."""
        self.manager_process = Process(self.time, "job manager")
        self.manager = ResourceManager(None)
        self.jobs: dict[str, Job] = {}
        self.workers: list[Worker] = []
        """All that live, and those that only think that they do."""
        self.by_address: dict[str, Worker] = {}
        self.number_of_workers = 0
        self._cut: set[str] = set()
        self._lost: dict[str, set[str]] = {}
        self.looks_at_deployments = True
        """Whether all slots of a job are looked at with each of its deployments, which costs the square of its size."""

    # What tests do.

    def add_worker(self, slots: int, name: str | None = None) -> Worker:
        self.number_of_workers += 1
        name = name or f"w{self.number_of_workers}"
        process = Process(self.time, f"worker {name}")
        ours, theirs = connect(self.manager_process, process, self.delay_ms)
        heartbeats = Heartbeats(ours, self.manager_process.timers, self.manager_process.clock)  # type: ignore[arg-type]
        self.manager.accept(ours)  # type: ignore[arg-type]
        heartbeats.start()
        worker = Worker(self, name, slots, process, theirs)
        self.workers.append(worker)
        self.by_address[worker.address] = worker
        worker.start()
        return worker

    def submit(self, job_graph: JobGraph, source_rows: int | None) -> Job:
        return Job(self, f"job{len(self.jobs) + 1}", job_graph, source_rows)

    def kill(self, worker: Worker) -> None:
        """Its connections are reset."""
        worker.close()
        worker.connection.other.incoming.send(lambda: worker.connection.other.end("the other side closed it"))
        for other in self.workers:
            worker.wire_to(other).send(lambda other=other: other.peer_died(worker))  # type: ignore[misc]

    def cut(self, worker: Worker) -> None:
        """Nothing from or to it arrives."""
        self._cut.add(worker.address)
        for wire in self._wires_of(worker):
            wire.cut()

    def mend(self, worker: Worker) -> None:
        self._cut.discard(worker.address)
        for wire in self._wires_of(worker):
            wire.mend()

    def repeat_old_news(self) -> None:
        """Attempts that are over are heard of once more: nothing must come of it."""
        for job in self.jobs.values():
            if job.look():
                continue
            executions = job.master._scheduler.executions
            next_id = job.master._checkpoints.next_id
            for vertex in job.graph.all_vertices():
                *old, _ = (e.attempt_id for e in executions.history(vertex.id))
                for worker in self.workers:
                    known = [attempt for attempt in old if job.job_id in worker.jobs]
                    for attempt in known:
                        self._repeat(worker, vertex, attempt, next_id)

    def _repeat(self, worker: Worker, vertex: ExecutionVertex, attempt: str, next_id: int) -> None:
        state = self.time.chance.choice([ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED])
        failure = TaskFailure(OSError("once more")) if state is ExecutionState.FAILED else None
        update = TaskUpdate(vertex.id, attempt, state, failure)
        worker._tell(attempt, lambda m: m.update_task(update))
        operator = OperatorSubtaskState(vertex.job_vertex.operators[0].operator_id)
        for number in range(max(next_id - 2, 1), next_id + 1):
            report = CheckpointAcknowledgement(vertex.id, attempt, number, SubtaskSnapshot((operator,)))
            worker._tell(attempt, lambda m, report=report: m.acknowledge_checkpoint(report))  # type: ignore[misc]

    # What others ask.

    @property
    def total_slots(self) -> int:
        return sum((w.total or 0) - len(w.lost) for w in self.manager.slots.workers)

    def is_of(self, slot: AllocatedSlot, job: Job) -> bool:
        return slot.allocation_id.startswith(f"{job.job_id}_")

    def lost_unheard(self, job: Job) -> int:
        """Slots that the pool has taken from a job whose job master has not been told yet."""
        here = {worker.name for worker in self.manager.slots.workers}
        held = job.master._scheduler.slots._held
        return sum(slot.worker not in here for slots in held.values() for slot in slots.values())

    def is_cut(self, one: Worker, other: Worker) -> bool:
        return one is not other and bool(self._cut & {one.address, other.address})

    def worker_is_gone(self, worker: Worker) -> None:
        if worker in self.workers:
            self.workers.remove(worker)

    def refuses_deployment(self) -> bool:
        return self.trouble > 0 and self.time.chance.random() < self.trouble / 10

    def disk_fails(self) -> bool:
        return self.trouble > 0 and self.time.chance.random() < self.trouble

    def _wires_of(self, worker: Worker) -> list:  # type: ignore[type-arg]
        wires = [worker.connection.incoming, worker.connection.other.incoming]
        for other in self.workers:
            if other is not worker:
                wires += [worker.wire_to(other), other.wire_to(worker)]
        return wires

    # What must hold.

    def check_slots_of(self, worker: Worker) -> None:
        """No slot holds two subtasks of one vertex: so many may live at a time of each vertex as the worker has slots for its job."""
        needed = 0
        for job_id in worker.jobs:
            living = Counter(t.vertex.id.vertex_id for t in worker.living if t.attempt.startswith(f"{job_id}_"))
            needed += max(living.values(), default=0)
        assert needed <= worker.slots, f"{worker.name} runs subtasks of {needed} slots and has {worker.slots}"

    def check(self) -> None:
        """At any time."""
        for worker in self.workers:
            self.check_slots_of(worker)
        for (name, index), slot in self.manager.slots.held.items():
            known = next(w for w in self.manager.slots.workers if w.name == name)
            assert 0 <= index < (known.total or 0), slot

    def check_quiet(self) -> None:
        """All jobs are over: no slot is lost, and nothing runs any more but what did not end when it was cancelled."""
        for job in self.jobs.values():
            job.check_end()
        assert self.manager.slots.held == {}
        assert sum(w.free or 0 for w in self.manager.slots.workers) == self.total_slots
        here = {w.name for w in self.manager.slots.workers}
        assert here == {w.name for w in self.workers}, "who lives has its slots in the pool, and nobody else"
        for worker in self.workers:
            for task in worker.living:
                assert task.is_stuck, f"{task.attempt} was left behind"


def with_settings(
    graph: JobGraph,
    name: str,
    *,
    checkpoint: CheckpointSettings | None = None,
    restart: RestartSettings | None = None,
    request_timeout_ms: int = 0,
    cancellation_timeout_ms: int = 20_000,
) -> JobGraph:
    settings = replace(
        graph.settings,
        checkpoint=checkpoint,
        restart=restart,
        slots=SlotSettings(request_timeout_ms=request_timeout_ms),
        cancellation_timeout_ms=cancellation_timeout_ms,
    )
    return replace(graph, name=name, settings=settings)


def all_over(jobs: Sequence[Job]) -> bool:
    """Whether every job has ended."""
    return all(job.look() for job in jobs)
