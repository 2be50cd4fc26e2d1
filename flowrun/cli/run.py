"""`flowrun run FILE`: run a pipeline in this process, or on Spark, with a live view on a terminal and plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import (
    ALLOW_NON_RESTORED,
    COMMITTED_AFTER,
    WORKERS,
    ViewOptions,
    all_overrides,
    compile_options,
    parse_assignments,
    view_options,
)
from flowrun.cli.cluster_arguments import DETACH, ClusterOptions, cluster_of_job, job_cluster_options
from flowrun.cli.rest_arguments import rest_options
from flowrun.cli.spark_arguments import SparkArguments, spark_arguments
from flowrun.cli.stream_on_spark import OnSpark, SparkRun, on_spark_options, refuse_on_spark, refuse_spark, run_on_spark
from flowrun.cli.user_code import may_run_user_code, spare_pandas

if TYPE_CHECKING:
    from flowrun.cli.job import JobRun
    from flowrun.cli.views.changelog_table import ResultView
    from flowrun.plan.nodes import Plan
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.spark.session import SparkOptions


COMMAND_LINE = Path("command-line.sql")
"""What messages call the script of --execute."""
STANDARD_INPUT = Path("stdin.sql")


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@compile_options
@click.option("-e", "--execute", "script", metavar="SQL", help="Instead of FILE: statements to run.")
@click.option("--mode", type=click.Choice(["streaming", "batch"]), help="batch runs on Spark.")
@spark_arguments
@on_spark_options
@click.option(
    "--from-savepoint", metavar="PATH", help="Go on from a savepoint, a checkpoint, or the newest of a folder of them."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "csv"]),
    help="How the rows of a SELECT are printed; else as a live table on a terminal, and as change lines elsewhere.",
)
@click.option(
    "--recover",
    is_flag=True,
    help="Go on from the newest checkpoint, or the savepoint with which it was stopped since; begin afresh if there is none.",
)
@ALLOW_NON_RESTORED
@COMMITTED_AFTER
@WORKERS
@job_cluster_options
@DETACH
@view_options
@rest_options
@click.pass_context
def run(
    ctx: click.Context,
    file: Path | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    script: str | None,
    mode: str | None,
    from_savepoint: str | None,
    form: str | None,
    recover: bool,
    allow_non_restored_state: bool,
    committed_after: str,
    workers: int | None,
    cluster: ClusterOptions | None,
    detach: bool,
    view: ViewOptions,
    spark: SparkArguments,
    on_spark: OnSpark | None,
) -> None:
    """Run a pipeline (.yaml, .sql) or a program (.py) to its end, or until it is stopped.

    In batch mode it runs on Spark: sources are read to their end, and what reaches the sinks is the final table, all of it or nothing.
    A stream runs in this process and processes of this machine, or, with --on spark, in the executors of Spark.

    With --cluster it runs there, and this command shows how it does. All machines of the cluster see the pipeline's files.

    Ctrl-C stops it: with a last checkpoint and the command that goes on from there, or, if the pipeline takes no checkpoints, after what
    was read is processed and written. A second Ctrl-C cancels.

    FILE may be `-`: an SQL script on standard input. Paths in it, as in the script of --execute, start in the working directory.
    """
    file, text = _text_of(file, script)
    spare_pandas(ctx, wanted=may_run_user_code(file, (*variables, *overrides)))
    from flowrun.cli.console import EXIT_OK, show_diagnostics, show_outputs
    from flowrun.cli.job import JobRun, prepare
    from flowrun.runners.compile import PROGRAM_SUFFIX, compile_pipeline
    from flowrun.runners.recompiling import recompiling

    prepare(view)
    if text is not None:
        _refuse_without_file(("--from-savepoint", from_savepoint), ("--recover", recover), ("--on", on_spark))
    cluster = cluster_of_job(cluster, detach, workers, elsewhere=on_spark is not None or mode == "batch")
    values, given = all_overrides(overrides, parallelism), parse_assignments(variables, "--var")
    if mode is not None:
        values["settings.mode"] = mode
    if on_spark is not None:
        refuse_on_spark(
            ("--mode batch", mode == "batch"), ("--workers", workers is not None), ("--format", form),
            ("--cluster", cluster), ("--recover", recover),
        )  # fmt: skip
        stream = SparkRun(
            file, given, values, view, spark.options(view.log.level), on_spark, from_savepoint,
            allow_non_restored_state, committed_after,
        )  # fmt: skip
        ctx.exit(run_on_spark(stream, show_traceback=ctx.obj["traceback"]))
    if file.suffix.lower() == PROGRAM_SUFFIX:
        from flowrun.cli.program import ProgramRun, run_jobs

        _refuse_for_programs(
            ("--mode", mode), ("--format", form), ("--recover", recover), ("an option of Spark", spark.are_given)
        )
        program = ProgramRun(
            file,
            given,
            values,
            view,
            from_savepoint,
            allow_non_restored_state,
            committed_after,
            workers,
            cluster,
            detach,
        )
        ctx.exit(run_jobs(program, show_traceback=ctx.obj["traceback"]))
    compiled = compile_pipeline(file, given, values, text=text)
    show_outputs(compiled.outputs)
    if not compiled.runs:
        show_diagnostics(() if view.quiet else compiled.warnings)
        ctx.exit(EXIT_OK)
    if compiled.is_batch:
        _refuse(
            ("--from-savepoint", from_savepoint),
            ("--recover", recover),
            ("--allow-non-restored-state", allow_non_restored_state),
            ("--committed-after", committed_after != "refuse"),
            ("--workers", workers),
            ("--cluster", cluster is not None and not cluster.is_default),
            ("--detach", detach),
            ("--rest", view.rest),
            ("--stop-savepoint", view.stop.savepoint),
            ("--stop-within", view.stop.within_ms),
        )
        ctx.exit(run_as_batch(compiled, spark.options(view.log.level, parallelism), view, form))
    refuse_spark(spark)
    job = JobRun(
        compiled,
        view,
        allow_non_restored=allow_non_restored_state,
        committed_after=committed_after,
        workers=workers,
        recompiling=recompiling(compiled, given, values),
    )
    begins_at = _newest(compiled, from_savepoint) if recover else from_savepoint
    if begins_at is not None:
        compiled, job = _restoring(ctx, compiled, job, begins_at, file, (given, values))
    if cluster is None:
        ctx.exit(run_with_results(job, compiled.optimised, form, show_traceback=ctx.obj["traceback"]))
    from flowrun.cli.cluster_job import run_on_cluster

    ctx.exit(run_on_cluster(job, given, values, cluster, detach=detach, show_traceback=ctx.obj["traceback"]).code)


def _newest(compiled: CompiledPipeline, from_savepoint: str | None) -> str | None:
    """The newest checkpoint of a pipeline, or the savepoint with which it was stopped since; None: there is none."""
    from flowrun.cli.recovering import newest_of

    if from_savepoint is not None:
        raise click.UsageError("--recover chooses the checkpoint: leave --from-savepoint out")
    newest = newest_of(compiled.job_graph)
    return None if newest is None else newest.folder


def _text_of(file: Path | None, script: str | None) -> tuple[Path, str | None]:
    """(the file, or what messages call a text that is in none; this text)."""
    if (file is None) == (script is None):
        raise click.UsageError(
            "give a FILE, or statements with --execute" + (", not both" if script is not None else "")
        )
    if script is not None:
        return COMMAND_LINE, script
    assert file is not None
    return (file, None) if str(file) != "-" else (STANDARD_INPUT, text_of_standard_input())


def text_of_standard_input() -> str:
    """All of it. Raises UsageError: it is no UTF-8 text."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is no UTF-8 text: byte {error.start}") from None


def _refuse_without_file(*options: tuple[str, object]) -> None:
    for name, value in options:
        if value:
            raise click.UsageError(f"{name} needs a file: write the statements to one")


def _restoring(
    ctx: click.Context,
    compiled: CompiledPipeline,
    job: JobRun,
    from_savepoint: str,
    file: Path,
    given: tuple[Mapping[str, str], Mapping[str, str]],
) -> tuple[CompiledPipeline, JobRun]:
    """A pipeline and its job, going on from a savepoint or checkpoint, which stays for as long as the job needs it."""
    from flowrun.cli.restoring import in_order_of, locate_state
    from flowrun.runners.recompiling import recompiling
    from flowrun.state.storage.leases import holding_leases

    leases = ctx.with_resource(ExitStack())
    leases.enter_context(holding_leases())
    restored = locate_state(from_savepoint, compiled.job_graph.name)
    compiled = in_order_of(compiled, restored, file, *given)
    again = recompiling(compiled, *given)
    return compiled, replace(job, compiled=compiled, restored=restored, release=leases.close, recompiling=again)


def run_as_batch(compiled: CompiledPipeline, options: SparkOptions, view: ViewOptions, form: str | None) -> int:
    """Run a pipeline in batch mode on Spark; gives the exit code."""
    from flowrun.cli.batch import run_batch_job
    from flowrun.core.optional_pandas import allow_pandas

    allow_pandas()  # Spark may want it
    return run_batch_job(compiled, options, view, form)


def run_with_results(job: JobRun, plan: Plan, form: str | None, *, show_traceback: bool) -> int:
    """Run a job while the rows of a SELECT are shown as is wanted; gives the exit code."""
    from flowrun.cli.job import run_job

    results, printing = _results(plan, form)
    with printing:
        return run_job(replace(job, results=results), show_traceback=show_traceback).code


def _refuse(*given: tuple[str, object]) -> None:
    """Raise UsageError for an option that a batch cannot have."""
    for option, value in given:
        if value:
            raise click.UsageError(f"{option} goes with --mode streaming: a batch keeps no state")


def _refuse_for_programs(*given: tuple[str, object]) -> None:
    """Raise UsageError for an option that a program cannot have."""
    for option, value in given:
        if value:
            raise click.UsageError(f"{option} cannot be given to a program: it runs on the embedded runtime")


def _results(plan: Plan, form: str | None) -> tuple[ResultView | None, AbstractContextManager[None]]:
    """(the live table of a SELECT on a terminal, what prints its rows in another form), as far as they are wanted."""
    shown = form is not None or sys.stdout.isatty()
    if not shown or not any(sink.table.connector == "print" for sink in plan.sinks):
        return None, nullcontext()
    from flowrun.cli.views.changelog_table import printed_results, result_view

    if form is not None:
        return None, printed_results(plan, form)
    return result_view(plan), nullcontext()
