"""`flowrun infer PATH`: writes a source for data that nobody has declared."""

from __future__ import annotations

from pathlib import Path

import click

_LANGUAGES = ("yaml", "sql")


@click.command()
@click.argument("path")
@click.option("--format", "form", metavar="FORMAT", help="Of the files; by default as their names say.")
@click.option("--as", "language", type=click.Choice(_LANGUAGES), default="yaml", show_default=True, help="Language.")
@click.option("--name", help="Of the table; by default as the path says.")
@click.option("--rows", type=click.IntRange(1), default=10_000, show_default=True, help="Rows to look at, about.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to a new file; its name may say the language.",
)
@click.pass_context
def infer(
    ctx: click.Context, path: str, form: str | None, language: str, name: str | None, rows: int, output: Path | None
) -> None:
    """Write a source for data that nobody has declared: types, NULLs, keys, event time and the delay of its watermark.

    PATH is a file, a folder or a glob, local or a URI. What is written is a pipeline that shows the rows, with what was seen as
    comments. Only a sample is looked at.
    """
    from flowrun.cli.console import EXIT_OK, say
    from flowrun.errors import PipelineError
    from flowrun.runners.inference.declaration import as_sql, as_yaml, declaration
    from flowrun.runners.inference.samples import FORMATS, local_name, sample_files

    if form is not None and form not in FORMATS:
        raise PipelineError.of(
            f"rows of format '{form}' do not tell their columns", f"one of {', '.join(FORMATS)} does"
        )
    if output is not None and output.suffix.lower() == ".sql":
        language = "sql"
    if output is not None and output.exists():
        raise PipelineError.of(f"'{output}' exists; nothing was written", "name a new file")
    declared = declaration(name or local_name(path), sample_files(path, form, rows))
    text = as_sql(declared) if language == "sql" else as_yaml(declared)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        say(f"wrote {output}; look at its rows:  flowrun preview {output}")
    ctx.exit(EXIT_OK)
