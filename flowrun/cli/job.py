"""Runs a compiled pipeline to its end, as `run` and `resume` do: with signals, views, control from other terminals and a summary."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flowrun.api.sink import StartingAfresh
from flowrun.cli.arguments import ViewOptions
from flowrun.cli.console import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    report_failure,
    say,
    show_diagnostics,
)
from flowrun.cli.interruption import Interruption, stop_on_signals
from flowrun.cli.logs import start_log
from flowrun.cli.part_of_upgrade import ends_for_next, go_on_with_next, version_watch
from flowrun.cli.report_file import check_report, write_report
from flowrun.cli.rest_arguments import say_where
from flowrun.cli.views.checkpoint_text import resume_command
from flowrun.cli.views.view import View, view_of
from flowrun.core.log_context import logging_for_job
from flowrun.core.record import record
from flowrun.errors import ClusterError, JobFailedError, SetupError, StateError
from flowrun.rest.doors import Door, close_doors, open_door
from flowrun.rest.endpoint import open_endpoint
from flowrun.runners.control import ControllableJob
from flowrun.runners.embedded import JobStateOptions
from flowrun.runners.job_document import document_of
from flowrun.runners.places_of_functions import functions_folder
from flowrun.runners.start_rescalable import JobPlace, compile_for_slots, reacting, start_rescalable
from flowrun.runners.traces import check_traces, traced
from flowrun.runtime.checkpoint.after_restore import AfterRestore
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.jobmaster.job_state import state_directory
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.watchdog.job_board import JobBoard
from flowrun.runtime.watchdog.memory_guard import memory_problem
from flowrun.runtime.watchdog.watchdog import watched

if TYPE_CHECKING:
    from flowrun.cli.part_of_upgrade import PartOfUpgrade
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.program import CompiledProgram
    from flowrun.runners.recompiling import Recompiling
    from flowrun.runners.rescaling import RescalableJob
    from flowrun.runtime.cluster.worker_cluster import WorkerCluster
    from flowrun.state.storage.locate import SnapshotPath

_REFRESH_MS = 250

_log = logging.getLogger(__name__)


class FollowedJob(ControllableJob, Protocol):
    """A job that runs here or elsewhere, as the command that has started it follows it."""

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        """The result once the job is over; None if it still runs after `timeout_ms`. Raises JobFailedError: it failed."""
        ...


@record
class JobRun:
    """A job that is to run.

    Attributes:
        compiled: the pipeline.
        view: what is shown.
        restored: the checkpoint or savepoint that the job restores from; None: it starts without state.
        allow_non_restored: whether state of operators that the pipeline no longer has is dropped.
        results: a view of a query's results, which takes the place of the job's figures; None: there are no results to show.
        committed_after: the value of an `AfterRestore`.
        workers: how many processes its subtasks run in; 0: this one; None: as is faster.
        cluster: gives the context with what subtasks run on, in place of `workers`; None: as `workers` says.
        release: is called as soon as the restored state is not needed any more, perhaps more than once.
        recompiling: how the job is compiled at another parallelism while it runs; a text: why it cannot be.
        place: the options of `flowrun resume` that name where the job runs, if that is neither here nor in processes of this command.
        settle_ms: the job takes the slots of `cluster` that there are, as soon as their number stood still for so long; None: it needs
            those that it needs.
        part: what the run is in an upgrade from one version to another; None: it is a run by itself.
    """

    compiled: CompiledPipeline | CompiledProgram
    view: ViewOptions
    restored: SnapshotPath | None = None
    allow_non_restored: bool = False
    results: AbstractContextManager[View] | None = None
    committed_after: str = "refuse"
    release: Callable[[], None] = lambda: None
    workers: int | None = None
    cluster: Callable[[], AbstractContextManager[WorkerCluster]] | None = None
    recompiling: Recompiling | str = "it is one of the jobs that a program runs"
    place: str = ""
    settle_ms: int | None = None
    part: PartOfUpgrade | None = None

    @property
    def takes_checkpoints(self) -> bool:
        """Whether the pipeline asks for checkpoints."""
        return self.compiled.job_graph.settings.checkpoint is not None

    @property
    def functions_from(self) -> Path | None:
        """The folder that its Python functions were imported from, if its text was kept with state; None: that of its file."""
        return None if isinstance(self.recompiling, str) else self.recompiling.functions_from

    @property
    def source_ids(self) -> frozenset[str]:
        """Ids of the vertices that hold sources."""
        return frozenset(v.vertex_id for v in self.compiled.job_graph.vertices if not v.inputs)

    @property
    def directory(self) -> str:
        """The folder below which the job's checkpoints are."""
        return state_directory(self.compiled.job_graph)

    def state_options(self) -> JobStateOptions:
        """Where state is written and restored from. A job that takes no checkpoints needs this too: for savepoints."""
        return JobStateOptions(
            directory=self.directory,
            pipeline=self.compiled.text,
            restore_from=None if self.restored is None else self.restored.folder,
            allow_non_restored_state=self.allow_non_restored,
            committed_after=AfterRestore(self.committed_after),
            hold=None if self.part is None else self.part.hold,
            forget_later=self.part is not None and self.part.forget_later,
        )


def prepare(view: ViewOptions) -> None:
    """Set up the log and the process.

    Raises:
        click.BadParameter: the log cannot be written, or the report could not be when the job is done.
    """
    from flowrun.runtime.process import tune_process

    start_log(view.log)
    if view.report is not None:
        check_report(view.report)
    tune_process()


def _check_client_libraries(compiled: CompiledPipeline | CompiledProgram) -> None:
    from flowrun.plan.client_libraries import check_client_libraries
    from flowrun.runners.compile import CompiledPipeline

    if isinstance(compiled, CompiledPipeline):  # a program has made its sources and sinks itself
        check_client_libraries(compiled.optimised)


@record
class Ending:
    """How a run ended: with which exit code, the result of the job unless it failed, and the signal that asked for the end, if one did."""

    code: int
    result: JobResult | None = None
    signal: int | None = None


def run_job(run: JobRun, *, show_traceback: bool) -> Ending:
    """Run a pipeline to its end. Messages to the user go to standard error.

    Raises:
        SetupError: a client library is not installed.
    """
    if run.cluster is None:
        _check_client_libraries(run.compiled)
    check_traces(run.compiled.job_graph)
    announce(run)
    with (
        closing(JobBoard(run.compiled.job_graph)) as board,
        _workers(run, board) if run.cluster is None else run.cluster() as cluster,
        stop_on_signals(
            run.view.quiet, checkpoints=run.takes_checkpoints, answer=board.answer, stop=run.view.stop
        ) as interruption,
        watched(board, cancel_timeout_ms=run.compiled.job_graph.settings.cancellation_timeout_ms, hint=_after(run)),
        _door(run) as door,
    ):
        place = JobPlace(cluster, board)
        try:
            if run.settle_ms is not None and not isinstance(run.recompiling, str):
                found = compile_for_slots(run.recompiling, place, run.settle_ms, lambda: interruption.requested)
                if found is None:
                    return Ending(EXIT_INTERRUPTED, signal=interruption.signal)
                run = replace(run, compiled=found)
            job = start_rescalable(run.compiled, run.state_options(), run.recompiling, place)
        except (StateError, SetupError) as error:  # nothing has run
            report_failure(error, show_traceback=show_traceback)
            if run.part is not None:
                run.part.failed(error)
            return Ending(EXIT_BAD_INPUT)
        memory, versions = _memory_watch(run, job), _version_watch(run, job)

        def look() -> None:
            memory()
            versions()

        around = _around(run, job, place, door)
        result = await_end(run, job, around, interruption, show_traceback=show_traceback, look=look)
        versions()
    ending = replace(report_end(run, result, interrupted=interruption.requested), signal=interruption.signal)
    if result is None or not ends_for_next(result):
        return ending
    secrets = None if run.cluster is not None or isinstance(run.recompiling, str) else run.recompiling.sent.secrets
    code = None if run.part is not None else go_on_with_next(result, run.view, run.workers, secrets)
    return ending if code is None else replace(ending, code=code)


def await_end(
    run: JobRun,
    job: FollowedJob,
    around: AbstractContextManager[object],
    interruption: Interruption,
    *,
    show_traceback: bool,
    look: Callable[[], None] = lambda: None,
) -> JobResult | None:
    """Show a job until it is over; gives its result, or None if it failed, which was reported.

    Args:
        run: what is run.
        job: that was started.
        around: is left when the job is over.
        interruption: of this process.
        show_traceback: of failures.
        look: is called now and then.
    """
    try:
        with around:
            return _follow(run, job, interruption, look)
    except JobFailedError as error:
        report_failure(error, show_traceback=show_traceback)
        if run.part is not None:
            run.part.failed(error)
        elif not _could_not_restore(run, job.status(), error):
            _say_how_to_resume(run, _last_checkpoint(run, job.status()))
        return None


def report_end(run: JobRun, result: JobResult | None, *, interrupted: bool) -> Ending:
    """Say how a job ended, and how the user can go on; None: it failed, which was said."""
    if result is None:
        return Ending(EXIT_FAILED)
    if run.view.report is not None:
        write_report(run.view.report, result)
    if not run.view.quiet:
        from flowrun.cli.views.summary import show_summary

        show_summary(result, run.source_ids)
    if result.stopped_at is not None:
        if not ends_for_next(result):
            _say_how_to_resume(run, result.stopped_at)
    elif result.state is JobState.CANCELED and run.part is None:
        _say_how_to_resume(run, _last_checkpoint(run, result))
    was_interrupted = interrupted or result.state is JobState.CANCELED
    return Ending(EXIT_INTERRUPTED if was_interrupted else EXIT_OK, result)


@contextmanager
def _workers(run: JobRun, board: JobBoard) -> Iterator[WorkerCluster | None]:
    """A context with the worker processes of a job, which must be forked before anything starts a thread; None: it has none.

    Raises:
        PipelineError: workers are asked for, and the job cannot have them.
        ClusterError: there are threads already.
    """
    if run.workers == 0:
        yield None
        return
    from flowrun.runners.workers import choose_workers

    numbers = choose_workers(run.compiled.job_graph, run.workers if run.results is None else run.workers or 0)
    if numbers is None:
        yield None
        return
    from flowrun.runtime.cluster.local_workers import LocalWorkers
    from flowrun.runtime.cluster.worker_cluster import WorkerCluster

    try:
        again = None if isinstance(run.recompiling, str) else run.recompiling.compile_opening
        workers = LocalWorkers(run.compiled.job_graph, numbers, board, again)
    except ClusterError as error:
        if run.workers is not None:
            raise
        _log.info("one process runs all subtasks: %s", error.message)
        yield None
        return
    try:
        cluster = WorkerCluster(workers)
    except BaseException:
        workers.close()
        raise
    with cluster:
        yield cluster


def _follow(run: JobRun, job: FollowedJob, interruption: Interruption, look: Callable[[], None]) -> JobResult:
    interruption.attach(job)
    released = run.restored is None
    with view_of(run.view) if run.results is None else run.results as view:
        interruption.is_shown = view is not None and view.shows_stopping
        while True:
            result = job.wait(_REFRESH_MS)
            if not released and _is_independent(run, job.status()):
                run.release()
                released = True
            if view is not None:
                view.update(job.status(), stopping=interruption.requested)
            if result is not None:
                return result
            interruption.check()
            look()


@contextmanager
def _around(run: JobRun, job: RescalableJob, place: JobPlace, door: Door | None) -> Iterator[None]:
    """A context in which a job of this process can be controlled from other terminals; at its end the job is over."""
    with (
        logging_for_job(job.job_id, run.compiled.job_graph.name),
        job,
        _controlled(run, job, door),
        traced(job, run.compiled.job_graph),
        reacting(job, run.recompiling, place, run.settle_ms),
    ):
        yield


def _memory_watch(run: JobRun, job: RescalableJob) -> Callable[[], None]:
    """What ends a job, or restarts it, when this machine has hardly any memory left."""

    def look() -> None:
        if (problem := memory_problem()) is not None:
            job.fail(problem)

    return look if run.compiled.job_graph.settings.memory_watch else lambda: None


def _version_watch(run: JobRun, job: RescalableJob) -> Callable[[], None]:
    restored = None if run.restored is None else run.restored.folder
    return version_watch(run.part, job, run.compiled, run.functions_from, restored)


def _is_independent(run: JobRun, status: JobStatus) -> bool:
    """Whether nothing, not even a restart, reads the state any more that the job restored from."""
    if run.takes_checkpoints:
        return status.checkpoints is not None and status.checkpoints.completed > 0
    return status.state is JobState.RUNNING


def announce(run: JobRun) -> None:
    """Show warnings, and say what the job restores from; or, if it starts without state, that an earlier run left a checkpoint."""
    if run.view.quiet:
        return
    show_diagnostics(run.compiled.warnings)
    if run.restored is not None:
        about = run.restored.metadata
        say(f"resuming from {about.kind.value} {about.checkpoint_id} of '{about.job_name}': {run.restored.folder}")
        if about.drained:
            say(
                "  it was taken by `stop --drain`: event time had come to its end, so windows that were open fire again"
            )
        return
    for vertex in run.compiled.job_graph.vertices:
        for operator in vertex.operators:
            sink: object = operator.sink
            if isinstance(sink, StartingAfresh) and (text := sink.describe_start()) is not None:
                say(f"sink '{operator.name.removeprefix('Sink: ')}' {text}")
    if run.takes_checkpoints and (earlier := _earlier_checkpoint(run)) is not None:
        kept = earlier.metadata.pipeline
        resume = resume_command(earlier.folder, () if kept is None else kept.withheld)
        say(f"starting afresh; to go on from the checkpoint of an earlier run: {resume}")


def _earlier_checkpoint(run: JobRun) -> SnapshotPath | None:
    """The newest checkpoint that an earlier run left in the job's folder; None if there is none that can be read."""
    from flowrun.cli.restoring import absolute_location
    from flowrun.state.storage.locate import locate

    directory = absolute_location(run.directory)
    if "://" not in directory and not os.path.isdir(directory):
        return None
    try:
        return locate(directory, job_name=run.compiled.job_graph.name)
    except StateError:  # a fresh start needs none
        return None


@contextmanager
def _door(run: JobRun) -> Iterator[Door | None]:
    """A context in which the job listens where the user has said, before it begins; None: nothing was said.

    Raises:
        ClusterError: it cannot listen there.
    """
    if run.view.rest is None:
        yield None
        return
    door = open_door(run.view.rest)
    try:
        if not run.view.quiet:
            say_where(door, "the page of this job")
        yield door
    finally:
        close_doors((door,))


@contextmanager
def _controlled(run: JobRun, job: RescalableJob, door: Door | None) -> Iterator[None]:
    """A context in which the job can be seen and controlled from elsewhere. One that cannot be registered runs nevertheless.

    Raises:
        ClusterError: it cannot be registered, and the user has said where it is to listen.
    """
    settings = run.compiled.job_graph.settings.checkpoint
    try:
        endpoint = open_endpoint(
            job,
            name=run.compiled.job_graph.name,
            file=run.compiled.text.file_name,
            sources=run.source_ids,
            checkpoints=settings is not None,
            savepoints=None if settings is None else settings.savepoint_directory,
            document=document_of(run.compiled.text),
            takes_versions=run.cluster is None and not isinstance(run.recompiling, str),
            door=door,
        )
    except ClusterError as error:
        if door is not None:
            raise
        if not run.view.quiet:
            say(f"this job cannot be controlled from another terminal: {error}")
        yield
        return
    try:
        yield
    finally:
        endpoint.close()


def _last_checkpoint(run: JobRun, ended: JobStatus | JobResult) -> str | None:
    """The path that a job that did not reach its end can be resumed from; None: there is none."""
    if ended.checkpoints is not None and ended.checkpoints.last is not None:
        return ended.checkpoints.last.path
    return None if run.restored is None else run.restored.folder


def _could_not_restore(run: JobRun, ended: JobStatus, error: JobFailedError) -> bool:
    """Whether the state that the job was to restore from is damaged, and the error names another checkpoint to resume from."""
    none_since = ended.checkpoints is None or ended.checkpoints.last is None
    cause = error.__cause__
    names_another = isinstance(cause, StateError) and "go on from" in (cause.hint or "")
    return run.restored is not None and none_since and names_another


def _say_how_to_resume(run: JobRun, path: str | None) -> None:
    if path is not None:
        text = run.compiled.text
        say(f"resume with:\n  {resume_command(path, text.withheld, functions_folder(text), run.place)}")
    elif run.takes_checkpoints:
        say("no checkpoint was completed: running it again starts from the beginning")


def _after(run: JobRun) -> str:
    """How the user can go on if the process is ended from outside."""
    if run.takes_checkpoints:
        return f"what was committed stays; `flowrun state list {shlex.quote(run.directory)}` shows the checkpoints to go on from"
    return "no checkpoints were taken: running it again starts from the beginning"
