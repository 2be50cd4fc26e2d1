"""`flowrun lineage [PATH] [SINK[.COLUMN]]`: from which columns of which tables the columns of sinks come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.views.mermaid import mermaid_text
from flowrun.frontend.project_file import project_file

if TYPE_CHECKING:
    from flowrun.plan.lineage import Origin
    from flowrun.runners.projects.lineage import PipelineColumn, WrittenColumn

_SUFFIXES = (".yaml", ".yml", ".sql")


@click.command()
@click.argument("place", metavar="[PATH]", required=False)
@click.argument("wanted", metavar="[SINK[.COLUMN]]", required=False)
@compile_options
@click.option("--from", "source", metavar="TABLE[.COLUMN]", help="Only what comes from there: who uses this column?")
@click.option("--format", "form", type=click.Choice(["text", "json", "mermaid"]), default="text", show_default=True)
@click.pass_context
def lineage(
    ctx: click.Context,
    place: str | None,
    wanted: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    source: str | None,
    form: str,
) -> None:
    """Show from which columns of which tables the columns of sinks come.

    PATH is a pipeline, a folder of pipelines, or a project; without it, the project around here. Of several pipelines the tables between
    them are followed, too. Told apart are the columns that values are made of, and those that decide which rows there are: conditions,
    keys, orders, times. A Python function may use every column that it is given.
    """
    from flowrun.cli.console import EXIT_BAD_INPUT, EXIT_OK, say, show_diagnostics
    from flowrun.errors import PipelineError
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.projects.lineage import lineage_together
    from flowrun.runners.projects.members import compile_members, errors_of, members_of

    path, wanted = _path_and_column(place, wanted)
    members = members_of(() if path is None else (path,))
    given, values = parse_assignments(variables, "--var"), all_overrides(overrides, parallelism)
    compiled = compile_members(members.files, given, values, missing_files=True)
    errors = errors_of(compiled)
    if errors:
        show_diagnostics(errors)
        ctx.exit(EXIT_BAD_INPUT)
    plans = [(m.file, m.compiled.plan) for m in compiled if isinstance(m.compiled, CompiledPipeline)]
    programs = [m.file for m in compiled if not isinstance(m.compiled, CompiledPipeline)]
    if not plans:
        raise PipelineError.of(f"'{programs[0]}' is a program: where its columns come from is not known before it runs")
    for file in programs:
        say(f"note: {file} is a program: where its columns come from is not known before it runs")
    found = _chosen(lineage_together(plans), wanted, source)
    several = len(plans) > 1
    if form == "json":
        click.echo(json.dumps([_as_json(column, several=several) for column in found], indent=2, ensure_ascii=False))
    elif form == "mermaid":
        lines = dict.fromkeys(line for column in found for line in _as_mermaid(column, several=several))
        click.echo("\n".join(["flowchart LR", *lines]))
    else:
        click.echo("\n".join(line for column in found for line in _as_text(column, several=several)))
    ctx.exit(EXIT_OK)


def _path_and_column(place: str | None, wanted: str | None) -> tuple[Path | None, str | None]:
    """The path and the column of the command line: a word that is no path is a column of the project around here."""
    if place is None:
        return None, None
    path = Path(place)
    if wanted is not None or path.exists() or path.suffix.lower() in _SUFFIXES or project_file(Path()) is None:
        return path, wanted
    return None, place


def _chosen(columns: tuple[PipelineColumn, ...], wanted: str | None, source: str | None) -> tuple[PipelineColumn, ...]:
    from flowrun.errors import PipelineError, did_you_mean
    from flowrun.runners.projects.lineage import that_come_from, with_those_before

    names = list(dict.fromkeys([*(c.written.sink for c in columns), *(str(c.written) for c in columns)]))
    if wanted is not None and wanted not in names:
        raise PipelineError.of(f"there is no sink or column '{wanted}'", did_you_mean(wanted, names))
    if source is not None:
        origins = {text for c in columns for o in c.origins for text in (o.table, str(o))}
        if source not in origins:
            raise PipelineError.of(f"nothing comes from '{source}'", did_you_mean(source, sorted(origins)))
        columns = that_come_from(source, columns)
    chosen = tuple(c for c in columns if wanted in (None, c.written.sink, str(c.written)))
    return with_those_before(chosen, columns)


def _as_text(column: PipelineColumn, *, several: bool) -> list[str]:
    written, its = column.written, column.lineage
    lines = [f"{written}  ({written.file})" if several else str(written)]
    lines.append(f"  made of     {_listed(its.made_of, column) or 'nothing that is read'}")
    if its.depends_on:
        lines.append(f"  depends on  {_listed(its.depends_on, column)}")
    if its.through:
        lines.append(f"  through     {' → '.join(its.through)}")
    return lines


def _listed(origins: Iterable[Origin], column: PipelineColumn) -> str:
    """Columns of tables; behind each the pipelines that write it."""
    texts = []
    for origin in origins:
        writers = ", ".join(
            w.file if str(w) == str(origin) else f"{w} of {w.file}" for w in column.writers.get(origin, ())
        )
        texts.append(f"{origin} ← {writers}" if writers else str(origin))
    return ", ".join(texts)


def _as_json(column: PipelineColumn, *, several: bool) -> dict[str, object]:
    def listed(origins: Iterable[Origin]) -> list[dict[str, object]]:
        return [{"table": o.table, "column": o.column, **_written_by(column.writers.get(o, ()))} for o in origins]

    return {
        **({"pipeline": column.written.file} if several else {}),
        "sink": column.written.sink,
        "column": column.written.column,
        "made_of": listed(column.lineage.made_of),
        "depends_on": listed(column.lineage.depends_on),
        "through": list(column.lineage.through),
    }


def _written_by(writers: Iterable[WrittenColumn]) -> dict[str, object]:
    found = [{"pipeline": w.file, "sink": w.sink, "column": w.column} for w in writers]
    return {"written_by": found} if found else {}


def _as_mermaid(column: PipelineColumn, *, several: bool) -> list[str]:
    """Arrows to the column; a table between two pipelines is the column that the one writes."""

    def name(written: WrittenColumn) -> str:
        return f"{written} ({written.file})" if several else str(written)

    def arrows(origins: Iterable[Origin], arrow: str) -> list[str]:
        return [
            f"  {_box(text)} {arrow} {target}"
            for origin in origins
            for text in [*map(name, column.writers.get(origin, ()))] or [str(origin)]
        ]

    target = _box(name(column.written))
    return [*arrows(column.lineage.made_of, "-->"), *arrows(column.lineage.depends_on, "-.->")]


def _box(text: str) -> str:
    """A box of Mermaid: an id without marks that mean something, and the text in quotes."""
    name = "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in text)
    return f'{name}["{mermaid_text(text)}"]'
