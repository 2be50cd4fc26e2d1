"""Tells whether a pipeline can run Python code that is not flowrun's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from flowrun.frontend.project_file import project_file

_FUNCTION = re.compile("function", re.IGNORECASE)


def may_run_user_code(file: Path, variables: Sequence[str]) -> bool:
    """Whether a pipeline may use Python functions of the user, or connectors or formats of other packages.

    False is certain: an SQL script in no project and without the word FUNCTION has no such functions. True means that it is possible.

    Args:
        file: the pipeline's file.
        variables: the texts that are put in for variables of the file.
    """
    from flowrun.connectors import registry as connectors
    from flowrun.connectors.formats import registry as formats

    if file.suffix != ".sql" or project_file(file.parent) is not None:
        return True
    if set(connectors.connector_names()) - set(connectors.BUILT_IN) or set(formats.format_names()) - set(
        formats.BUILT_IN
    ):
        return True
    try:
        texts = [file.read_text(encoding="utf-8", errors="replace"), *variables]
    except OSError:  # the compiler reports it when it reads the file
        return True
    return any(_FUNCTION.search(text) for text in texts)
