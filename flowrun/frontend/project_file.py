"""Where the project of a pipeline is; what does not read it needs no more than this."""

from __future__ import annotations

from pathlib import Path

PROJECT_FILE = "flowrun.yaml"
ENVIRONMENT = "project.environment"
"""The path under which the environment stands among the values of the command line, so that it is kept and sent with them."""


def project_file(folder: Path) -> Path | None:
    """The nearest `flowrun.yaml` in a folder or above it, relative to the working directory if it is below that; None: there is none."""
    absolute = folder.absolute()
    for place in (absolute, *absolute.parents):
        if (place / PROJECT_FILE).is_file():
            here = Path.cwd()
            return (place.relative_to(here) if place.is_relative_to(here) else place) / PROJECT_FILE
    return None
