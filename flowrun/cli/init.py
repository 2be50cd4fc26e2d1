"""`flowrun init [DIR]`: makes a small project that runs as it is."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from flowrun.errors import FlowrunError, PipelineError

FILES = {
    "pipeline.yaml": "pipeline.yaml",
    "functions.py": "functions.py.txt",
    "data/orders.json": "orders.json",
    "README.md": "README.md",
}
"""File of the project → its template in flowrun/cli/templates."""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
def init(directory: Path) -> None:
    """Make a small project that runs: a pipeline, a Python function and some data.

    Existing files are never overwritten.
    """
    taken = [name for name in FILES if (directory / name).exists()]
    if taken:
        problem = f"{directory}: {', '.join(taken)} already exist; nothing was written"
        raise PipelineError.of(problem, hint="choose an empty directory")
    templates = resources.files("flowrun.cli") / "templates"
    try:
        for name, template in FILES.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text((templates / template).read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise FlowrunError(f"cannot write the project to {directory}: {error}") from error
    place = "" if directory == Path() else f"cd {directory} && "
    click.echo(f"Made {', '.join(FILES)} in {directory.resolve()}.\nRun it:  {place}flowrun run pipeline.yaml")
