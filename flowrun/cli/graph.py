"""`flowrun graph [PATH]`: the pipelines of a project, and the tables between them."""

from __future__ import annotations

from pathlib import Path

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.user_code import only_names_user_code, spare_pandas


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@compile_options
@click.option(
    "--format", "form", type=click.Choice(["text", "mermaid", "dot", "json"]), default="text", show_default=True
)
@click.pass_context
def graph(
    ctx: click.Context,
    path: Path | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    form: str,
) -> None:
    """Show the pipelines of a project, and the tables between them: files, topics, tables of databases.

    PATH is a project, a folder of pipelines, or a pipeline; without it, the project around here. Tables are the same if connectors reach
    them at the same address. Two pipelines that write one table, and pipelines that read each other in a circle, are errors.
    """
    spare_pandas(ctx, wanted=path is None or not only_names_user_code([path]))
    from flowrun.cli.console import EXIT_BAD_INPUT, EXIT_OK, show_diagnostics
    from flowrun.cli.views.project_graph import graph_text
    from flowrun.masking import masked
    from flowrun.runners.projects.members import compile_members, errors_of, graph_of, members_of, problems_together

    members = members_of(() if path is None else (path,))
    given, values = parse_assignments(variables, "--var"), all_overrides(overrides, parallelism)
    compiled = compile_members(members.files, given, values, missing_files=True)
    errors = errors_of(compiled) or problems_together(compiled)
    if errors:
        show_diagnostics(errors)
        ctx.exit(EXIT_BAD_INPUT)
    click.echo(masked(graph_text(graph_of(compiled), form)))
    ctx.exit(EXIT_OK)
