"""`flowrun init [DIR]`: makes a small project that runs as it is, or one around data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.data_arguments import data_options
from flowrun.errors import FlowrunError, PipelineError

if TYPE_CHECKING:
    from flowrun.runners.inference.sample import Asked, Sample

FILES = {
    "pipeline.yaml": "pipeline.yaml",
    "pipeline.test.yaml": "pipeline.test.yaml.txt",
    "functions.py": "functions.py.txt",
    "data/orders.json": "orders.json",
    "README.md": "README.md",
}
"""File of the project → its template in flowrun/cli/templates."""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from",
    "data",
    metavar="PLACE",
    help="Begin with data whose columns are found out: a place as `flowrun infer` takes it.",
)
@data_options
def init(
    directory: Path | None,
    data: str | None,
    asked: Asked,
) -> None:
    """Make a small project that runs: a pipeline, a Python function and some data. Without arguments it asks.

    With --from, the pipeline reads this data, as `flowrun infer` proposes it; a first test, a workflow that runs it for every change and
    settings of editors come with it. Existing files are never overwritten, and passwords never written.
    """
    asks = directory is None and data is None
    if directory is None:
        directory = _asked_directory() if asks else Path()
    _check_free(directory, ("pipeline.yaml",))
    asked = replace(asked, place=data or "", start=directory, download_to=directory / "data")
    sample: Sample | None = None
    if asks:
        from flowrun.cli.asking import ask_for_data

        sample = ask_for_data(asked)
    elif data is not None:
        from flowrun.runners.inference.places import sample_of

        sample = sample_of(asked)
    if sample is None:
        files, command = _example(), "run pipeline.yaml"
    else:
        files, command = _of_data(sample)
    _check_free(directory, files)
    _write(directory, files)
    place = "" if directory == Path() else f"cd {directory} && "
    click.echo(f"Made {', '.join(files)} in {directory.resolve()}.\nNow:  {place}flowrun {command}")


def _asked_directory() -> Path:
    from flowrun.cli.asking import ask_for_directory

    return ask_for_directory()


def _check_free(directory: Path, files: Iterable[str]) -> None:
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        problem = f"{directory}: {', '.join(taken)} already exist; nothing was written"
        raise PipelineError.of(problem, hint="choose an empty directory")


def _example() -> dict[str, str]:
    templates = resources.files("flowrun.cli") / "templates"
    return {name: (templates / template).read_text(encoding="utf-8") for name, template in FILES.items()}


def _of_data(sample: Sample) -> tuple[dict[str, str], str]:
    """(the files of a project that reads this data, the command that comes next)."""
    from flowrun.frontend.yaml.declaration.json_schema import json_schema
    from flowrun.runners.inference.declaration import declaration
    from flowrun.runners.inference.project import first_command, project_files

    return project_files(declaration(sample), json_schema()), first_command(sample)


def _write(directory: Path, files: Mapping[str, str]) -> None:
    try:
        for name, text in files.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FlowrunError(f"cannot write the project to {directory}: {error}") from error
