"""`flowrun lineage FILE [SINK[.COLUMN]]`: from which columns of which tables the columns of sinks come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.views.mermaid import mermaid_text

if TYPE_CHECKING:
    from flowrun.plan.lineage import ColumnLineage


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("wanted", metavar="[SINK[.COLUMN]]", required=False)
@compile_options
@click.option("--from", "source", metavar="TABLE[.COLUMN]", help="Only what comes from there: who uses this column?")
@click.option("--format", "form", type=click.Choice(["text", "json", "mermaid"]), default="text", show_default=True)
@click.pass_context
def lineage(
    ctx: click.Context,
    file: Path,
    wanted: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    source: str | None,
    form: str,
) -> None:
    """Show from which columns of which tables the columns of sinks come.

    Told apart are the columns that values are made of, and those that decide which rows there are: conditions, keys, orders, times. A
    Python function may use every column that it is given.
    """
    from flowrun.cli.console import EXIT_OK
    from flowrun.plan.lineage import plan_lineage
    from flowrun.runners.compile import compile_pipeline

    compiled = compile_pipeline(file, parse_assignments(variables, "--var"), all_overrides(overrides, parallelism))
    found = _chosen(plan_lineage(compiled.plan), wanted, source)
    if form == "json":
        click.echo(json.dumps([_as_json(column) for column in found], indent=2, ensure_ascii=False))
    elif form == "mermaid":
        click.echo(
            "\n".join(["flowchart LR", *dict.fromkeys(line for column in found for line in _as_mermaid(column))])
        )
    else:
        click.echo("\n".join(line for column in found for line in _as_text(column)))
    ctx.exit(EXIT_OK)


def _chosen(columns: tuple[ColumnLineage, ...], wanted: str | None, source: str | None) -> list[ColumnLineage]:
    from flowrun.errors import PipelineError, did_you_mean

    names = [*dict.fromkeys(c.sink for c in columns), *(f"{c.sink}.{c.column}" for c in columns)]
    if wanted is not None and wanted not in names:
        raise PipelineError.of(f"there is no sink or column '{wanted}'", did_you_mean(wanted, names))
    chosen = [c for c in columns if wanted in (None, c.sink, f"{c.sink}.{c.column}")]
    if source is None:
        return chosen
    origins = {text for c in columns for o in (*c.made_of, *c.depends_on) for text in (o.table, str(o))}
    if source not in origins:
        raise PipelineError.of(f"nothing comes from '{source}'", did_you_mean(source, sorted(origins)))
    return [c for c in chosen if any(source in (o.table, str(o)) for o in (*c.made_of, *c.depends_on))]


def _as_text(column: ColumnLineage) -> list[str]:
    lines = [f"{column.sink}.{column.column}"]
    lines.append(f"  made of     {', '.join(map(str, column.made_of)) or 'nothing that is read'}")
    if column.depends_on:
        lines.append(f"  depends on  {', '.join(map(str, column.depends_on))}")
    if column.through:
        lines.append(f"  through     {' → '.join(column.through)}")
    return lines


def _as_json(column: ColumnLineage) -> dict[str, object]:
    return {
        "sink": column.sink,
        "column": column.column,
        "made_of": [{"table": o.table, "column": o.column} for o in column.made_of],
        "depends_on": [{"table": o.table, "column": o.column} for o in column.depends_on],
        "through": list(column.through),
    }


def _as_mermaid(column: ColumnLineage) -> list[str]:
    target = _box(f"{column.sink}.{column.column}")
    solid = [f"  {_box(str(o))} --> {target}" for o in column.made_of]
    return [*solid, *(f"  {_box(str(o))} -.-> {target}" for o in column.depends_on)]


def _box(text: str) -> str:
    """A box of Mermaid: an id without marks that mean something, and the text in quotes."""
    name = "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in text)
    return f'{name}["{mermaid_text(text)}"]'
