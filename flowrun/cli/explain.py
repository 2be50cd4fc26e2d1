"""`flowrun explain FILE`: what a pipeline becomes, stage by stage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import WORKERS, all_overrides, parse_assignments, pipeline_arguments
from flowrun.cli.console import say, show_diagnostics
from flowrun.cli.spark_arguments import SparkArguments, spark_arguments
from flowrun.cli.user_code import only_names_user_code, spare_pandas
from flowrun.errors import PipelineError

if TYPE_CHECKING:
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.spark.session import SparkOptions

STAGES = ("plan", "transformations", "stream", "job", "execution")
SPARK = "spark"


@click.command()
@pipeline_arguments
@click.option("--stage", type=click.Choice([*STAGES, SPARK, "all"]), default="plan", show_default=True)
@click.option("--format", "output", type=click.Choice(["text", "json", "mermaid"]), default="text", show_default=True)
@click.option("--verbose", is_flag=True, help="With the stage spark: Spark's own plan of each sink as well.")
@WORKERS
@spark_arguments
@click.pass_context
def explain(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    stage: str,
    output: str,
    verbose: bool,
    workers: int | None,
    spark: SparkArguments,
) -> None:
    """Show what a pipeline becomes, from plan to execution graph, or on Spark.

    Of a program (job.py), which is run up to its first env.execute(), the first stage is that of the transformations.

    The plan as text begins with what is promised of each sink after a failure. The stage spark starts Spark, and shows which steps are
    native and which run the streaming operators; with --verbose Spark's own plans too. The stage execution shows which slot and process
    each subtask has if the pipeline is run with these --workers, and which channels are remote. Files that sources read need not exist.
    """
    spare_pandas(ctx, wanted=stage not in STAGES or not only_names_user_code([file]))  # Spark may want it, too
    from flowrun.connectors.filesystem.table_path import allowing_missing
    from flowrun.runners.compile import PROGRAM_SUFFIX, compile_file, compile_pipeline

    program = file.suffix.lower() == PROGRAM_SUFFIX
    if program and stage in ("plan", SPARK):
        if stage == SPARK:
            raise PipelineError.of(f"{file}: programs run on the embedded runtime, not on Spark")
        stage = "transformations"
    given = parse_assignments(variables, "--var")
    values = all_overrides(overrides, parallelism)
    if stage == SPARK:
        values["settings.mode"] = "batch"
    with allowing_missing() as missing:
        if program:
            job = compile_file(file, given, values)
            for number, name in enumerate(STAGES[1:] if stage == "all" else (stage,)):
                _show_title(name, number, shown=stage == "all")
                click.echo(job.render(name, output, workers))
            return
        compiled = compile_pipeline(file, given, values)
        show_diagnostics(compiled.warnings)
        _show(compiled, _stages(compiled, stage), output, spark.options(parallelism=parallelism), verbose, workers)
    for location in missing:
        say(f"warning: there is no file at '{location.text}': explained as if there were")


def _show_title(name: str, number: int, *, shown: bool) -> None:
    if shown:
        click.echo(("\n" if number else "") + f"== {name} ==")


def _stages(compiled: CompiledPipeline, stage: str) -> tuple[str, ...]:
    if stage != "all":
        return (stage,)
    return ("plan", SPARK) if compiled.is_batch else STAGES


def _show(
    compiled: CompiledPipeline,
    stages: tuple[str, ...],
    output: str,
    options: SparkOptions,
    verbose: bool,
    workers: int | None,
) -> None:
    for number, name in enumerate(stages):
        _show_title(name, number, shown=len(stages) > 1)
        if name == "plan" and output == "text":
            click.echo("\n".join([*(g.explained for g in compiled.guarantees), ""]))
        if name == SPARK:
            from flowrun.runners.spark import explain_batch

            click.echo(explain_batch(compiled, options, output, verbose=verbose))
        else:
            click.echo(compiled.render(name, output, workers))
