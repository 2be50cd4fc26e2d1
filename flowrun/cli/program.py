"""Programs in Python on the command line: `flowrun run job.py`, `flowrun resume --from-savepoint PATH job.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.cluster_arguments import ClusterOptions
from flowrun.cli.console import EXIT_OK
from flowrun.cli.job import Ending, JobRun, run_job
from flowrun.cli.restoring import locate_state
from flowrun.core.record import record
from flowrun.errors import PipelineError
from flowrun.runners.program import CompiledProgram, RunningExecutor, no_job, run_program
from flowrun.runtime.job_status import JobResult
from flowrun.state.storage.leases import holding_leases


@record
class ProgramRun:
    """A program, and how its jobs are to be run.

    Attributes:
        file: the program.
        variables: what it is given.
        overrides: settings in place of its own.
        view: what is shown.
        from_savepoint: where the state is that its one job goes on from; None: its jobs start afresh.
        allow_non_restored: drop state of operators that the job no longer has.
        committed_after: the name of an `AfterRestore`.
        workers: as of `JobRun`.
        cluster: where its jobs run; None: here.
        detach: its first job is left on the cluster.
    """

    file: Path
    variables: Mapping[str, str]
    overrides: Mapping[str, str]
    view: ViewOptions
    from_savepoint: str | None = None
    allow_non_restored: bool = False
    committed_after: str = "refuse"
    workers: int | None = None
    cluster: ClusterOptions | None = None
    detach: bool = False


def run_jobs(run: ProgramRun, *, show_traceback: bool) -> int:
    """Run a program and its jobs, one after the other; gives the exit code. A job that fails or is stopped ends the program.

    Raises:
        PipelineError: the program or one of its jobs is wrong, or there is no state to go on from.
    """
    endings: list[int] = []

    def run_one(compiled: CompiledProgram) -> JobResult:
        if endings and (run.from_savepoint is not None or run.cluster is not None):
            only = (
                "goes on from a savepoint"
                if run.cluster is None
                else "runs on a cluster, whose processes run the program up to it"
            )
            raise PipelineError.of(
                f"{run.file}: the program runs a second job, '{compiled.name}', but only one {only}",
                "give each job a program of its own",
            )
        with ExitStack() as leases:
            restored = None
            if run.from_savepoint is not None:
                leases.enter_context(holding_leases())
                restored = locate_state(run.from_savepoint, compiled.job_graph.name)
            job = JobRun(
                compiled, run.view, restored, run.allow_non_restored,
                committed_after=run.committed_after, release=leases.close, workers=run.workers,
            )  # fmt: skip
            ending = _run(run, job, show_traceback=show_traceback)
        endings.append(ending.code)
        if ending.result is None or ending.code != EXIT_OK:
            raise _Ended
        return ending.result

    try:
        run_program(run.file, RunningExecutor(run.file, run.variables, run.overrides, run_one))
    except _Ended:
        return endings[-1]
    if not endings:
        raise no_job(run.file)
    return EXIT_OK


def _run(run: ProgramRun, job: JobRun, *, show_traceback: bool) -> Ending:
    """Run one job here or on the cluster."""
    if run.cluster is None:
        return run_job(job, show_traceback=show_traceback)
    from flowrun.cli.cluster_job import run_on_cluster

    return run_on_cluster(
        job, run.variables, run.overrides, run.cluster, detach=run.detach, show_traceback=show_traceback
    )


class _Ended(BaseException):
    """A job has failed or was stopped, and was reported: the program ends there."""
