"""Puts the parts of a subtask together: mailbox, operator chain with its writers, snapshots, cancellation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from flowrun.core.clock import Clock
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertex
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runtime.mailbox import Mailbox, Priority
from flowrun.runtime.messages import JobMasterGateway, TaskDeployment
from flowrun.runtime.metrics import MetricRegistry, ScopedMetrics, TimeAccount
from flowrun.runtime.network.gate import InputGate
from flowrun.runtime.network.key_sample import HEAVY_KEYS, KeySample
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.selectors import create_selector
from flowrun.runtime.network.writer import RecordWriter
from flowrun.runtime.row_samples import RowSample
from flowrun.runtime.task.cancellation import Cancellation
from flowrun.runtime.task.chain import ChainEnvironment, OperatorChain
from flowrun.runtime.task.checkpoints import TaskCheckpoints
from flowrun.runtime.task.snapshots import SnapshotEnvironment, SubtaskSnapshots
from flowrun.runtime.task.stream_task import StreamTask, TaskParts
from flowrun.runtime.task.time_service import MailboxTimeService
from flowrun.runtime.timers import TimerThread
from flowrun.runtime.watchdog.board import SubtaskActivity, private_activity
from flowrun.state.storage.contract import SnapshotStorage


def create_task(
    deployment: TaskDeployment,
    graph: ExecutionGraph,
    partitions: Sequence[ResultPartition],
    gates: Sequence[InputGate],
    *,
    job_master: JobMasterGateway,
    timers: TimerThread,
    clock: Clock,
    metrics: MetricRegistry,
    storage: SnapshotStorage | None = None,
    uploads: Executor | None = None,
    activity: SubtaskActivity | None = None,
    spill_folder: Callable[[], Path] | None = None,
) -> StreamTask:
    """One execution of one subtask, whose thread is not started yet.

    Args:
        deployment: what to run.
        graph: of the job; has the subtask.
        partitions: in the order of the subtask's partitions; the task finishes or releases them.
        gates: one a logical input; the task releases them.
        job_master: is told of states, split requests and committables.
        timers: of the process.
        clock: of the process.
        metrics: of the job.
        storage: where snapshots are written and read; None if the job takes and restores none.
        uploads: threads that write snapshots, shared by all subtasks; the task waits for what it submitted before it ends.
        activity: where it notes what it is doing; None if no watchdog reads that.
        spill_folder: gives where it may write what does not fit into memory; None if it never sorts its inputs.
    """
    vertex, settings, mailbox = graph.vertex(deployment.vertex), graph.job_graph.settings, Mailbox()
    activity = private_activity() if activity is None else activity
    scope = (vertex.id.vertex_id, str(vertex.subtask))
    own_metrics, time = metrics.group(*scope), metrics.account_time(clock, *scope, waits=activity.wait)
    time_service = MailboxTimeService(timers, mailbox)
    cancellation = Cancellation(vertex.name, clock)

    def execute(work: Callable[[], None]) -> None:
        mailbox.put(lambda: checkpoints.run_or_hold(work))

    def fail(error: Exception) -> None:
        """Have the task's thread raise an error of another thread."""

        def raise_it() -> None:
            raise error

        mailbox.put(raise_it, Priority.URGENT)

    def finish_operators() -> None:
        cancellation.check()
        chain.finish()

    chain = OperatorChain(
        vertex.job_vertex,
        _create_writers(graph, vertex, partitions, own_metrics, time, clock),
        ChainEnvironment(
            subtask=vertex.subtask,
            clock=clock,
            processing_time=time_service,
            metrics=metrics,
            execute=execute,
            pause=cancellation.pause,
            job_id=deployment.job_id,
            settings=settings,
            lineage=deployment.lineage,
            first_checkpoint_id=deployment.first_checkpoint_id,
            activity=activity,
            staging="" if storage is None or settings.checkpoint is None else storage.staging,
        ),
    )
    snapshots = SubtaskSnapshots(
        SnapshotEnvironment(
            vertex=vertex,
            attempt_id=deployment.attempt_id,
            chain=chain,
            partitions=partitions,
            storage=storage,
            uploads=uploads,
            job_master=job_master,
            clock=clock,
            timers=timers,
            wake=mailbox.resume,
            fail=fail,
        )
    )
    checkpoints = TaskCheckpoints(vertex.name, snapshots, time_service, clock, finish_operators)
    parts = TaskParts(
        vertex,
        settings,
        mailbox,
        cancellation,
        chain,
        checkpoints,
        time_service,
        tuple(partitions),
        tuple(gates),
        own_metrics,
        graph.job_graph.name,
        time,
        activity,
    )
    return StreamTask(deployment, parts, job_master=job_master, clock=clock, storage=storage, spill_folder=spill_folder)


def _create_writers(
    graph: ExecutionGraph,
    vertex: ExecutionVertex,
    partitions: Sequence[ResultPartition],
    metrics: ScopedMetrics,
    time: TimeAccount,
    clock: Clock,
) -> list[RecordWriter]:
    records_out, bytes_out = metrics.counter("numRecordsOut"), metrics.counter("numBytesOut")
    writers = []
    for partition, planned in zip(partitions, vertex.partitions, strict=True):
        partition.attach(time, bytes_out)
        groups = graph.vertex(planned.consumers[0].vertex).job_vertex.max_parallelism
        selector = create_selector(planned.partitioner, planned.subpartitions, vertex.subtask, groups)
        sample = None
        if isinstance(planned.partitioner, KeyGroupPartitioner) and planned.subpartitions > 1:
            sample = KeySample(planned.partitioner.keys, clock)
            metrics.gauge_family(f"{HEAVY_KEYS}.{planned.id.data_set_id}", sample.heaviest)
        rows = RowSample(clock)
        metrics.sample_rows(planned.id.data_set_id, rows)
        writers.append(RecordWriter(selector, partition, records_out, sample, rows))
    return writers
