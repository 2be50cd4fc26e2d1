"""`flowrun jobmanager FILE`: run one pipeline whose subtasks run in task managers, which join over the network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import (
    ALLOW_NON_RESTORED,
    COMMITTED_AFTER,
    ViewOptions,
    all_overrides,
    compile_options,
    parse_assignments,
    view_options,
)
from flowrun.cli.cluster_arguments import (
    HANG_TIMEOUT,
    SECRET_FILE,
    STATE,
    TLS,
    cluster_credentials,
    host_and_port,
    listen_option,
    proofs_as_arguments,
)
from flowrun.cli.rest_arguments import rest_options

if TYPE_CHECKING:
    from flowrun.runtime.rpc.address import Address


def _reactive_ms(settle: str, parallelism: int | None) -> int:
    """How long the number of slots stands still before it counts."""
    from flowrun.core.units import parse_duration_ms

    if parallelism is not None:
        raise click.UsageError("--reactive chooses the parallelism: leave -p out")
    try:
        return parse_duration_ms(settle)
    except ValueError as error:
        raise click.BadParameter(f"'{settle}' is no duration: {error}", param_hint="--settle") from None


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@compile_options
@listen_option(
    "Where task managers join, and clients; port 0 is any free one. By default only those of this machine can."
)
@SECRET_FILE
@TLS
@click.option(
    "--from-savepoint", metavar="PATH", help="Go on from a savepoint, a checkpoint, or the newest of a folder of them."
)
@click.option(
    "--recover", is_flag=True, help="Go on from the newest checkpoint of the pipeline; begin afresh if there is none."
)
@click.option(
    "--standby",
    is_flag=True,
    help="As --recover, once no other job manager of the pipeline that was started with --standby leads: one takes the place of another.",
)
@click.option(
    "--reactive",
    is_flag=True,
    help="Take the slots that there are: the parallelism follows as task managers come and go.",
)
@click.option(
    "--settle",
    metavar="DURATION",
    default="10s",
    show_default=True,
    help="With --reactive: how long the number of slots stands still before it counts.",
)
@STATE
@HANG_TIMEOUT
@ALLOW_NON_RESTORED
@COMMITTED_AFTER
@view_options
@rest_options
@click.pass_context
def jobmanager(
    ctx: click.Context,
    file: Path | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    listen: Address,
    secret_file: Path,
    tls: Path | None,
    from_savepoint: str | None,
    recover: bool,
    standby: bool,
    reactive: bool,
    settle: str,
    state: str | None,
    hang_timeout_ms: int,
    allow_non_restored_state: bool,
    committed_after: str,
    view: ViewOptions,
) -> None:
    """Run a pipeline (.yaml, .sql) or the first job of a program (.py) on task managers, to its end or until it is stopped.

    Without FILE it takes jobs from `flowrun run --cluster` until it is ended: a session cluster. Each job has a process of its own.

    The pipeline waits until `flowrun taskmanager` processes have brought enough slots. One that dies is replaced by whoever started it, or
    by slots that others have left; the job goes on from its last checkpoint.

    The pipeline travels as text, with the Python modules beside it that it imports. All processes see the files that it reads and writes,
    and its checkpoints, under the same paths.
    """
    from flowrun.cli.console import say
    from flowrun.cli.job import JobRun, prepare, run_job
    from flowrun.cli.recovering import Recovering, check_takes_checkpoints, note_ending
    from flowrun.runners.job_text import sent_job
    from flowrun.runners.recompiling import recompiling
    from flowrun.runtime.cluster.remote_workers import RemoteWorkers
    from flowrun.runtime.cluster.worker_cluster import WorkerCluster

    prepare(view)
    if file is None:
        from flowrun.cli.session import SessionOptions, of_a_cluster, run_session

        of_its_state = (from_savepoint, recover, standby, allow_non_restored_state)
        of_a_job = (*variables, *overrides, parallelism, reactive, *of_its_state, view.report)
        given_for_a_job = any(of_a_job) or committed_after != "refuse"
        if given_for_a_job:
            raise click.UsageError(
                "options of a job go with FILE: without one this is a cluster; `flowrun run --cluster` has them"
            )
        options = SessionOptions(
            listen, secret_file, tls, state, hang_timeout_ms, view.quiet, view.rest, of_a_cluster(view.stop)
        )
        ctx.exit(run_session(options))
    settle_ms = _reactive_ms(settle, parallelism) if reactive else None
    _check_state(state)
    values, given = all_overrides(overrides, parallelism), parse_assignments(variables, "--var")
    told = Recovering(from_savepoint, recover, standby, hang_timeout_ms)
    begun = told.begin(ctx, file, given, values, quiet=view.quiet)
    compiled = begun.compiled
    if reactive:
        check_takes_checkpoints(compiled.job_graph)
    sent = sent_job(compiled.text, given, values)
    credentials = cluster_credentials(secret_file, tls, create=True)

    def say_where(address: Address) -> None:
        if not view.quiet:
            at = proofs_as_arguments(secret_file, tls)
            say(f"task managers join with:\n  flowrun taskmanager --jobmanager {host_and_port(address)}{at}")

    def cluster() -> WorkerCluster:
        return WorkerCluster(RemoteWorkers(listen, credentials, say_where), sent.text, sent.files)

    run = JobRun(
        compiled, view, begun.restored, allow_non_restored_state,
        committed_after=committed_after, release=begun.release, cluster=cluster,
        recompiling=recompiling(compiled, given, values, sent=sent.text), settle_ms=settle_ms,
    )  # fmt: skip
    ending = run_job(run, show_traceback=ctx.obj["traceback"])
    if begun.lead is not None:
        note_ending(begun.lead, ending)
    ctx.exit(ending.code)


def _check_state(state: str | None) -> None:
    if state is not None:
        raise click.UsageError("--state is for a cluster: what the job of FILE keeps is in its checkpoints")
