"""`flowrun init [DIR]`: makes a small project that runs as it is."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import click

from flowrun.errors import FlowrunError, PipelineError

FILES = {
    "pipeline.yaml": "pipeline.yaml",
    "pipeline.test.yaml": "pipeline.test.yaml.txt",
    "functions.py": "functions.py.txt",
    "data/orders.json": "orders.json",
    "README.md": "README.md",
}
"""File of the project → its template in flowrun/cli/templates."""


SAMPLE_ROWS = 10_000


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--from", "data", metavar="PATH", help="Begin with data: a file, a folder or a glob, whose columns are found out."
)
def init(directory: Path, data: str | None) -> None:
    """Make a small project that runs: a pipeline, a Python function and some data.

    With --from, the pipeline reads this data, as `flowrun infer` proposes it; a first test, a workflow that runs it for every change and
    settings of editors come with it. Existing files are never overwritten.
    """
    if data is None:
        templates = resources.files("flowrun.cli") / "templates"
        files = {name: (templates / template).read_text(encoding="utf-8") for name, template in FILES.items()}
    else:
        files = _from_data(directory, data)
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        problem = f"{directory}: {', '.join(taken)} already exist; nothing was written"
        raise PipelineError.of(problem, hint="choose an empty directory")
    try:
        for name, text in files.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FlowrunError(f"cannot write the project to {directory}: {error}") from error
    place = "" if directory == Path() else f"cd {directory} && "
    next_step = "Run it:  " if data is None else "Look at its rows, and run its test:  "
    command = "flowrun run pipeline.yaml" if data is None else "flowrun dev pipeline.yaml"
    click.echo(f"Made {', '.join(files)} in {directory.resolve()}.\n{next_step}{place}{command}")


def _from_data(directory: Path, data: str) -> dict[str, str]:
    """The files of a project that reads this data, which stays where it is."""
    from dataclasses import replace

    from flowrun.connectors.filesystem.table_path import TablePath
    from flowrun.frontend.yaml.declaration.json_schema import json_schema
    from flowrun.runners.inference.declaration import declaration
    from flowrun.runners.inference.project import project_files
    from flowrun.runners.inference.samples import local_name, sample_files

    sample = sample_files(data, None, SAMPLE_ROWS)
    if TablePath(data).is_local and not os.path.isabs(data):
        sample = replace(sample, path=os.path.relpath(data, directory))
    return project_files(declaration(local_name(data), sample), json_schema())
