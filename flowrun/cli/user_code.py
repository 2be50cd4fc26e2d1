"""Whether a pipeline can run Python code of users."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_FUNCTION = re.compile("function", re.IGNORECASE)


def may_run_user_code(file: Path, variables: Sequence[str]) -> bool:
    """Whether a pipeline file, with values of variables put in, may name Python functions, or connectors or formats installed by others.

    False is certain: an SQL script that never says FUNCTION has no functions of users. True is not.
    """
    from flowrun.connectors import registry as connectors
    from flowrun.connectors.formats import registry as formats

    if file.suffix != ".sql":
        return True
    if set(connectors.connector_names()) - set(connectors.BUILT_IN) or set(formats.format_names()) - set(
        formats.BUILT_IN
    ):
        return True
    try:
        texts = [file.read_text(encoding="utf-8", errors="replace"), *variables]
    except OSError:  # reported by those who read it as a pipeline
        return True
    return any(_FUNCTION.search(text) for text in texts)
