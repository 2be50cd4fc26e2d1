"""`flowrun backfill FILE --to T`: recompute a range of event time on Spark, and perhaps go on from its end as a stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import ViewOptions, all_overrides, parse_assignments, pipeline_arguments, view_options
from flowrun.cli.spark_arguments import SparkArguments, spark_arguments
from flowrun.cli.time_range import range_options

if TYPE_CHECKING:
    from flowrun.runners.backfill import Backfill, BackfillReport
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.spark.context import TimeRange

_DEFAULT_SAVEPOINTS = ".flowrun/savepoints"


@click.command()
@pipeline_arguments
@range_options(needs_stop=True)
@click.option("--dry-run", is_flag=True, help="Say what would be read, written and replaced; nothing is run.")
@click.option(
    "--parallel-ranges",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Split the range into N, computed beside each other; all output appears together.",
)
@click.option("--savepoint", metavar="DIR", help="Leave the state at the end of the range below DIR, to go on from.")
@click.option("--then-stream", is_flag=True, help="Go on as a stream from the end of the range.")
@spark_arguments
@click.option("--format", "form", type=click.Choice(["json", "csv"]), help="How the rows of a SELECT are printed.")
@view_options
@click.pass_context
def backfill(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    period: TimeRange,
    dry_run: bool,
    parallel_ranges: int,
    savepoint: str | None,
    then_stream: bool,
    spark: SparkArguments,
    form: str | None,
    view: ViewOptions,
) -> None:
    """Recompute a range of event time on Spark.

    Written are the rows with event times from --from up to, but not, --to; results of windows count at the end of their window, less
    1 ms. What they need from before the range is read too. Results without event time, and updated ones, are those at --to. A repeated
    backfill of a range replaces what the one before wrote.

    T is a date, an ISO 8601 time (UTC unless it says otherwise) or milliseconds since 1970.
    """
    from flowrun.cli.batch import run_shown
    from flowrun.cli.console import EXIT_INTERRUPTED, EXIT_OK, show_diagnostics
    from flowrun.cli.job import prepare
    from flowrun.runners.backfill import Backfill, run_backfill
    from flowrun.runners.compile import compile_pipeline

    if parallel_ranges > 1:
        _check_parallel(period, savepoint is not None or then_stream)
    prepare(view)
    values = {
        **all_overrides(overrides, parallelism),
        "settings.mode": "streaming",
        "settings.embedded_mode": "streaming",
    }
    compiled = compile_pipeline(file, parse_assignments(variables, "--var"), values)
    if not compiled.runs:
        raise click.UsageError(f"'{file}' has no sink: there is nothing to recompute")
    if then_stream and savepoint is None:
        savepoint = _savepoints_of(compiled)
    wanted = Backfill(period, parallel_ranges, savepoint)
    if not view.quiet:
        show_diagnostics(compiled.warnings)
    if dry_run:
        _show_preview(compiled, wanted)
        ctx.exit(EXIT_OK)
    options = spark.options(view.log.level, parallelism)
    report = run_shown(
        lambda listener: run_backfill(compiled, wanted, options, listener=listener), compiled.optimised, view, form
    )
    if report is None:
        ctx.exit(EXIT_INTERRUPTED)
    _show_report(report, view)
    if report.savepoint is None:
        ctx.exit(EXIT_OK)
    path = report.savepoint.path
    ctx.exit(_stream_on(compiled, path, view, ctx) if then_stream else _say_how_to_go_on(compiled, path, view))


def _check_parallel(period: TimeRange, leaves_state: bool) -> None:
    if period.start is None:
        raise click.UsageError("--parallel-ranges needs --from: without it the range has no beginning to split from")
    if leaves_state:
        raise click.UsageError(
            "--parallel-ranges does not go with --savepoint: state comes from one run over everything before --to"
        )


def _savepoints_of(compiled: CompiledPipeline) -> str:
    settings = compiled.job_graph.settings.checkpoint
    return (settings.savepoint_directory if settings is not None else None) or _DEFAULT_SAVEPOINTS


def _show_report(report: BackfillReport, view: ViewOptions) -> None:
    from flowrun.cli.batch import show_report
    from flowrun.cli.views.backfill_text import range_text, savepoint_line
    from flowrun.cli.views.batch_view import run_summary

    left = report.savepoint
    lines = run_summary(report, f"{range_text(report.period)} recomputed")
    more = {"from_ms": report.period.start, "to_ms": report.period.stop, "savepoint": left and left.path}
    show_report(report, view, [*lines, *([] if left is None else [savepoint_line(left)])], more)


def _say_how_to_go_on(compiled: CompiledPipeline, path: str, view: ViewOptions) -> int:
    from flowrun.cli.console import EXIT_OK, say
    from flowrun.cli.views.checkpoint_text import resume_command
    from flowrun.runners.places_of_functions import functions_folder

    if not view.quiet:
        say(
            f"go on from there with:\n  {resume_command(path, compiled.text.withheld, functions_folder(compiled.text))}"
        )
    return EXIT_OK


def _stream_on(compiled: CompiledPipeline, path: str, view: ViewOptions, ctx: click.Context) -> int:
    from flowrun.cli.job import JobRun, run_job
    from flowrun.cli.restoring import locate_state

    restored = locate_state(path, compiled.job_graph.name)
    run = JobRun(compiled, replace(view, report=None), restored)
    return run_job(run, show_traceback=ctx.obj["traceback"]).code


def _show_preview(compiled: CompiledPipeline, wanted: Backfill) -> None:
    from flowrun.cli.views.backfill_text import preview_lines
    from flowrun.runners.backfill import parts_of
    from flowrun.runners.backfill_preview import preview_backfill

    parts = parts_of(compiled.optimised, wanted.period, wanted.ranges)
    for line in preview_lines(preview_backfill(compiled.optimised, wanted, parts), wanted):
        click.echo(line)
