"""`flowrun validate FILE`: every problem of a pipeline, without running it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flowrun.cli.arguments import all_overrides, parse_assignments, pipeline_arguments
from flowrun.cli.console import EXIT_BAD_INPUT, show_diagnostics
from flowrun.errors import Diagnostic, PipelineError


@click.command()
@pipeline_arguments
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def validate(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    output: str,
) -> None:
    """Check a pipeline without running it; reports all problems.

    For a valid one, says what is promised of each sink after a failure. A program (job.py) is run up to its first env.execute().
    """
    from flowrun.runners.compile import compile_file

    try:
        compiled = compile_file(file, parse_assignments(variables, "--var"), all_overrides(overrides, parallelism))
        problems, failed, guarantees = compiled.warnings, False, compiled.guarantees
    except PipelineError as error:
        problems, failed, guarantees = error.diagnostics, True, ()
    if output == "json":
        report = {
            "valid": not failed,
            "problems": [_as_json(p) for p in problems],
            "delivery": [g.to_json() for g in guarantees],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        show_diagnostics(problems)
        if not failed:
            click.echo(f"{file}: valid")
            for guarantee in guarantees:
                click.echo(f"  {guarantee}")
    if failed:
        ctx.exit(EXIT_BAD_INPUT)


def _as_json(problem: Diagnostic) -> dict[str, object]:
    place = problem.location
    return {
        "severity": problem.severity.value,
        "message": problem.message,
        "hint": problem.hint,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "length": place.length if place else None,
    }
