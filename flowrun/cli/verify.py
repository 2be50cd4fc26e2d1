"""`flowrun verify FILE`: whether a pipeline gives the same rows as a stream and on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import all_overrides, parse_assignments, pipeline_arguments
from flowrun.cli.spark_arguments import SparkArguments, spark_arguments
from flowrun.cli.time_range import range_options

if TYPE_CHECKING:
    from flowrun.runners.verify import Verification
    from flowrun.spark.context import TimeRange


@click.command()
@pipeline_arguments
@range_options(needs_stop=False)
@spark_arguments
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Rows to show of each sink and side that differ.",
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Only errors, and the result.")
@click.pass_context
def verify(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    period: TimeRange,
    spark: SparkArguments,
    sample: int,
    output: str,
    quiet: bool,
) -> None:
    """Run a pipeline as a stream and on Spark, and compare what its sinks would get.

    Nothing is written to the sinks. Sources must have an end. With --from and --to, the rows are those that a backfill of the range
    writes. Exits with 1 if any row differs; floating numbers may differ by one part in a thousand million.
    """
    from flowrun.cli.batch import shown, until_stopped
    from flowrun.cli.console import EXIT_FAILED, EXIT_OK, show_diagnostics
    from flowrun.runners.compile import compile_pipeline
    from flowrun.runners.verify import verify as run_both

    compiled = compile_pipeline(file, parse_assignments(variables, "--var"), all_overrides(overrides, parallelism))
    if not compiled.runs:
        raise click.UsageError(f"'{file}' has no sink: there is nothing to verify")
    if not quiet:
        show_diagnostics(compiled.warnings)
    options = spark.options(parallelism=parallelism)
    with shown(quiet=quiet) as listener:
        result = until_stopped(lambda: run_both(compiled, options, period=period, sample=sample, listener=listener))
    if output == "json":
        click.echo(json.dumps(_as_json(result), indent=2, ensure_ascii=False))
    else:
        _show(result, quiet=quiet)
    ctx.exit(EXIT_OK if result.equal else EXIT_FAILED)


def _show(result: Verification, *, quiet: bool) -> None:
    from flowrun.cli.console import say
    from flowrun.cli.views.figures import count_text, counted_text, duration_text
    from flowrun.cli.views.tables import show_table

    headings = ("sink", "stream", "Spark", "only stream", "only Spark", "")
    rows = [
        (
            s.name,
            *(count_text(n) for n in (s.stream_rows, s.spark_rows, s.only_stream, s.only_spark)),
            "equal" if s.equal else "DIFFERENT",
        )
        for s in result.sinks
    ]
    show_table(headings, rows, headings[1:5])
    for sink in result.sinks:
        if sink.sample:
            click.echo(f"\n{sink.name}: rows that differ")
            values = [
                ("stream" if is_stream else "Spark", *("NULL" if v is None else v for v in row))
                for is_stream, row in sink.sample
            ]
            show_table(("only", *sink.columns), values)
    for operator, count in result.late.items():
        say(f"  {operator}: the stream took {counted_text(count, 'row')} for late; on Spark nothing is late")
    if not quiet:
        stream, start, ran = (duration_text(ms) for ms in (result.stream_ms, result.start_ms, result.spark_ms))
        say(f"the stream ran for {stream}, Spark started in {start} and ran for {ran}")


def _as_json(result: Verification) -> dict[str, object]:
    return {
        "equal": result.equal,
        "sinks": [
            {
                "name": s.name,
                "equal": s.equal,
                "stream_rows": s.stream_rows,
                "spark_rows": s.spark_rows,
                "only_stream": s.only_stream,
                "only_spark": s.only_spark,
                "columns": list(s.columns),
                "sample": [
                    {"engine": "stream" if is_stream else "spark", "row": list(row)} for is_stream, row in s.sample
                ],
            }
            for s in result.sinks
        ],
        "late_rows": dict(result.late),
        "stream_ms": result.stream_ms,
        "spark_start_ms": result.start_ms,
        "spark_ms": result.spark_ms,
    }
