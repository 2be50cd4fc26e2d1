"""Where the Python functions of a kept pipeline are, for whoever resumes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from flowrun.state.checkpoints import PipelineText

_MAY_NAME_FUNCTIONS = re.compile(r"functions?\b|map\s*:|process\s*:", re.IGNORECASE)


def functions_folder(kept: PipelineText) -> str | None:
    """The folder that whoever resumes names with `--functions-from`; None: the text names no functions, or one is in the folder anyway."""
    return folder_to_name(places_of_functions(kept))


def places_of_functions(kept: PipelineText) -> tuple[str, ...]:
    """Folders in which whoever resumes need not name one for the text's functions, that of its file first; none: it names no functions."""
    texts = [kept.text] if kept.project is None else [kept.text, kept.project.text, *kept.project.scripts.values()]
    if not any(map(_MAY_NAME_FUNCTIONS.search, texts)):
        return ()
    return (kept.directory,) if kept.project is None else (kept.directory, kept.project.directory)


def folder_to_name(places: Sequence[str]) -> str | None:
    """The folder to name with `--functions-from`, of those of `places_of_functions`; None: none has to be named here."""
    return None if not places or Path.cwd() in map(Path, places) else places[0]
