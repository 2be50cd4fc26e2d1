"""`flowrun infer PLACE`: writes a source for data that nobody has declared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.data_arguments import data_options

if TYPE_CHECKING:
    from flowrun.runners.inference.sample import Asked

_LANGUAGES = ("yaml", "sql")


@click.command()
@click.argument("place")
@data_options
@click.option("--as", "language", type=click.Choice(_LANGUAGES), default="yaml", show_default=True, help="Language.")
@click.option("--name", help="Of the table; by default as the place says.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to a new file; its name may say the language.",
)
@click.pass_context
def infer(
    ctx: click.Context,
    place: str,
    asked: Asked,
    language: str,
    name: str | None,
    output: Path | None,
) -> None:
    """Write a source for data that nobody has declared: types, NULL, keys, event time and the delay of its watermark.

    PLACE is a file, a folder or a glob, local or a URI (s3://…); https://HOST/FILE; kafka://HOST:PORT/TOPIC;
    postgresql://USER@HOST/DATABASE/TABLE; or FILE/TABLE of SQLite or DuckDB. What is written is a pipeline that shows the rows, with what
    was seen as comments. Only a sample is looked at, and no trace is left where it is. Passwords are never written.
    """
    from flowrun.cli.console import EXIT_OK, say
    from flowrun.errors import FlowrunError, PipelineError
    from flowrun.runners.inference.declaration import as_sql, as_yaml, declaration
    from flowrun.runners.inference.places import sample_of

    if output is not None and output.suffix.lower() == ".sql":
        language = "sql"
    if output is not None and output.exists():
        raise PipelineError.of(f"'{output}' exists; nothing was written", "name a new file")
    asked = replace(asked, place=place, download_to=None if output is None else output.parent)
    declared = declaration(sample_of(asked), name)
    text = as_sql(declared) if language == "sql" else as_yaml(declared)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise FlowrunError(f"cannot write {output}: {error.strerror}") from error
        say(f"wrote {output}; look at its rows:  flowrun {'run' if asked.changes else 'preview'} {output}")
    ctx.exit(EXIT_OK)
