"""Puts the parts of a job master together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flowrun.core.clock import Clock
from flowrun.graph.execution_graph import ExecutionGraph
from flowrun.runtime.checkpoint.coordinator import CheckpointCoordinator
from flowrun.runtime.checkpoint.events import SnapshotRequested
from flowrun.runtime.jobmaster.checkpoint_outcomes import CheckpointOutcomes
from flowrun.runtime.jobmaster.checkpoint_runner import CheckpointRunner
from flowrun.runtime.jobmaster.commits import CommitCoordinator
from flowrun.runtime.jobmaster.final_commit import FinalCommit
from flowrun.runtime.jobmaster.hooks import MasterHook, MasterHooks
from flowrun.runtime.jobmaster.job_master import JobMaster, JobMasterParts
from flowrun.runtime.jobmaster.job_state import OpenedState
from flowrun.runtime.jobmaster.job_tasks import JobTasks, OneProcess, WorkerPlaces
from flowrun.runtime.jobmaster.long_commits import LongCommits
from flowrun.runtime.jobmaster.main_thread import JobMasterThreads
from flowrun.runtime.jobmaster.ordered_sources import OrderedSources
from flowrun.runtime.jobmaster.recovery import Recovery
from flowrun.runtime.jobmaster.restart import restart_strategy
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.jobmaster.scheduler_driver import SchedulerDriver
from flowrun.runtime.jobmaster.scheduler_events import ResultsCommitted
from flowrun.runtime.jobmaster.slot_requests import SlotRequests
from flowrun.runtime.jobmaster.snapshot_requests import SnapshotRequests
from flowrun.runtime.jobmaster.sources import JobSources
from flowrun.runtime.jobmaster.status import StatusReader
from flowrun.runtime.mailbox import Mail
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.slot_messages import SlotProvider
from flowrun.runtime.timers import TimerThread

if TYPE_CHECKING:
    from flowrun.runtime.jobmaster.details import DetailsReader


def create_job_master(
    state: OpenedState,
    graph: ExecutionGraph,
    *,
    job_id: str,
    clock: Clock,
    timers: TimerThread,
    metrics: MetricRegistry,
    slots: SlotProvider,
    on_end: Callable[[Sequence[str]], None],
    describe_stuck: Callable[[Sequence[str]], tuple[str, ...]],
    hooks: Sequence[MasterHook] = (),
    places: WorkerPlaces | None = None,
    threads: JobMasterThreads | None = None,
) -> JobMaster:
    """The job master of one job, which is not started yet.

    Args:
        state: the job, where its state goes and what it restores from; closed at the end of the job.
        graph: the parallel job.
        job_id: unique to this run.
        clock: processing time.
        timers: for periodic work.
        metrics: of the job.
        slots: whoever has slots.
        on_end: called on the job master's thread with all subtasks ended: frees what they shared.
        describe_stuck: attempt ids → what those subtasks are doing, for the error.
        hooks: take part in checkpoints.
        places: knows where workers are; None: all subtasks run in one process.
        threads: what it does on; None: threads of its own.
    """
    job_graph, settings, now_ms = state.job_graph, state.job_graph.settings, clock.now_ms()
    threads = threads or JobMasterThreads()
    main, master_hooks = threads.main(f"flowrun-job-{job_graph.name}"), MasterHooks(hooks)
    mailbox = main.mailbox

    def post(mail: Mail) -> None:
        mailbox.put(mail)

    strategy = restart_strategy(settings.restart, checkpoints=settings.checkpoint is not None)
    driver = SchedulerDriver(Scheduler(graph, job_id, now_ms, strategy), clock)
    executions = driver.scheduler.executions
    commits = CommitCoordinator(
        job_graph,
        checkpoints=state.takes_checkpoints,
        run=state.run,
        log=state.storage.note_commits,
        long=LongCommits(threads.io(f"flowrun-commits-{job_graph.name}", post), driver.fail),
        discard_staged=state.storage.discard_staged,
        hold=state.hold,
        before_hold=() if state.hold is None else state.restored_commits,
    )
    tasks = JobTasks(graph, job_id, state.identity.lineage, executions, places or OneProcess())
    sources = JobSources(
        job_graph,
        clock=clock,
        timers=timers,
        post=post,
        send=tasks.send_split,
        failed=driver.fail,
        in_order=OrderedSources(graph),
    )

    def submit(request: SnapshotRequested) -> None:
        checkpoints.handle(request)  # which needs the requests itself, to answer them

    requests = SnapshotRequests(mailbox, clock, state.takes_checkpoints, submit, batch_mode=settings.batch_mode)
    outcomes = CheckpointOutcomes(driver, requests)
    final_commit = FinalCommit(
        requests,
        commits,
        takes_checkpoints=state.takes_checkpoints,
        stopped=lambda: outcomes.stop_path is not None,
        post=post,
        committed=lambda: driver.handle(ResultsCommitted()),
        failed=driver.fail,
    )
    outcomes.connect(final_commit)
    checkpoints = CheckpointRunner(
        state,
        CheckpointCoordinator(
            settings.checkpoint,
            frozenset(vertex.id for vertex in graph.all_vertices()),
            first_id=state.next_checkpoint_id,
            retained=state.retained,
            now_ms=now_ms,
            name_of=lambda vertex: graph.vertex(vertex).name,
        ),
        tasks=tasks,
        sources=sources,
        commits=commits,
        hooks=master_hooks,
        listener=outcomes,
        clock=clock,
        timers=timers,
        post=post,
        io=threads.io(f"flowrun-checkpoints-{job_graph.name}", post),
    )
    status = StatusReader(graph, executions, metrics, clock)

    def details() -> DetailsReader:
        from flowrun.runtime.jobmaster.details import DetailsReader  # nobody looks into most jobs

        return DetailsReader(graph, executions, metrics, status, clock)

    parts = JobMasterParts(
        graph=graph,
        main=main,
        driver=driver,
        slots=SlotRequests(job_id, job_graph.name, slots, timers, settings.slots.request_timeout_ms, post),
        status=status,
        details=details,
        tasks=tasks,
        sources=sources,
        commits=commits,
        recovery=Recovery(graph, state, sources, commits, master_hooks),
        checkpoints=checkpoints,
        outcomes=outcomes,
        requests=requests,
        final_commit=final_commit,
    )
    return JobMaster(
        state, parts, job_id=job_id, clock=clock, timers=timers, on_end=on_end, describe_stuck=describe_stuck
    )
