"""`flowrun run FILE`: run a pipeline in this process, with a live view on a terminal and plain lines elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from flowrun.cli.arguments import (
    ALLOW_NON_RESTORED,
    ViewOptions,
    all_overrides,
    parse_assignments,
    pipeline_arguments,
    view_options,
)


@click.command()
@pipeline_arguments
@click.option("--mode", type=click.Choice(["streaming", "batch"]), help="batch runs on Spark.")
@click.option(
    "--from-savepoint", metavar="PATH", help="Go on from a savepoint, a checkpoint, or the newest of a folder of them."
)
@ALLOW_NON_RESTORED
@view_options
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    mode: str | None,
    from_savepoint: str | None,
    allow_non_restored_state: bool,
    view: ViewOptions,
) -> None:
    """Run a pipeline to its end, or until it is stopped.

    Ctrl-C stops it: with a last checkpoint and the command that goes on from there, or, if the pipeline takes no checkpoints, after what
    was read is processed and written. A second Ctrl-C cancels.
    """
    from flowrun.cli.job import JobRun, prepare, run_job
    from flowrun.runners.compile import compile_pipeline

    prepare(view)
    values = all_overrides(overrides, parallelism)
    if mode is not None:
        values["settings.mode"] = mode
    compiled = compile_pipeline(file, parse_assignments(variables, "--var"), values)
    restored = None
    if from_savepoint is not None:
        from flowrun.cli.restoring import locate_state

        restored = locate_state(from_savepoint, compiled.job_graph.name)
    ctx.exit(run_job(JobRun(compiled, view, restored, allow_non_restored_state), show_traceback=ctx.obj["traceback"]))
