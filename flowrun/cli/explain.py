"""`flowrun explain FILE`: what a pipeline becomes, stage by stage."""

from __future__ import annotations

from pathlib import Path

import click

from flowrun.cli.arguments import all_overrides, parse_assignments, pipeline_arguments
from flowrun.cli.console import show_diagnostics

STAGES = ("plan", "transformations", "stream", "job", "execution")


@click.command()
@pipeline_arguments
@click.option("--stage", type=click.Choice([*STAGES, "all"]), default="plan", show_default=True)
@click.option("--format", "output", type=click.Choice(["text", "json", "mermaid"]), default="text", show_default=True)
def explain(
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    stage: str,
    output: str,
) -> None:
    """Show what a pipeline becomes, from plan to execution graph.

    The plan as text begins with what is promised of each sink after a failure.
    """
    from flowrun.runners.compile import compile_pipeline

    compiled = compile_pipeline(file, parse_assignments(variables, "--var"), all_overrides(overrides, parallelism))
    show_diagnostics(compiled.warnings)
    stages = STAGES if stage == "all" else (stage,)
    for number, name in enumerate(stages):
        if len(stages) > 1:
            click.echo(("\n" if number else "") + f"== {name} ==")
        if name == "plan" and output == "text":
            click.echo("\n".join([*(f"{g}" for g in compiled.guarantees), ""]))
        click.echo(compiled.render(name, output))
