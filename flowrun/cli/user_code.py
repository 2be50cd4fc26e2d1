"""Tells whether a pipeline can run Python code that is not flowrun's own, without which pandas is not needed either."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import click

from flowrun.core.optional_pandas import allow_pandas, forgo_pandas
from flowrun.frontend.project_file import project_file

_SQL, _YAML = (".sql",), (".yaml", ".yml")
_FUNCTION = re.compile("function", re.IGNORECASE)
_REFERENCE = re.compile(r"[\w.}]:[A-Za-z_$]|\\")
"""A function as YAML names it, `module:name` or `${MODULE}:${NAME}`, or an escape that may stand for a part of one."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)")
_PIPELINE = re.compile(r"^\s*pipeline:\s*([^\s#'\"]+)\s*(?:#.*)?$", re.MULTILINE)


def spare_pandas(ctx: click.Context, *, wanted: bool) -> None:
    """Unless it may be wanted, have pyarrow not import pandas until the command ends.

    To be called before modules are imported that convert values, as most do.
    """
    if not wanted:
        forgo_pandas()
        ctx.call_on_close(allow_pandas)


def only_names_user_code(paths: Sequence[Path]) -> bool:
    """Whether a command that compiles these pipelines, and does not run them, runs no code of users beyond the imports of their modules.

    False is possible where a pipeline is a program, where none is named, and where packages add connectors or formats.
    """
    return bool(paths) and all(map(_is_text, paths)) and not _are_added()


def may_run_user_code(file: Path, given: Sequence[str] = ()) -> bool:
    """Whether a pipeline may use Python functions of the user, or connectors or formats of other packages.

    False is certain: a pipeline in no project, which is an SQL script without the word FUNCTION or YAML without a text like `module:name`,
    has no such functions. True means that it is possible.

    Args:
        file: the pipeline's file.
        given: the texts that are put in for variables of the file, or for values in it.
    """
    if not _is_text(file) or project_file(file.parent) is not None or _are_added():
        return True
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the compiler reports it when it reads the file
        return True
    texts = [text, *given, *(os.environ.get(name, "") for name in _VARIABLE.findall(text))]
    sign = _FUNCTION if file.suffix.lower() in _SQL else _REFERENCE
    return any(sign.search(t) for t in texts)


def may_tests_run_user_code(files: Sequence[Path]) -> bool:
    """Whether tests of pipelines may use Python functions; False is certain, as above. `files`: those of the tests."""
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        named = _PIPELINE.search(text)
        if named is None or _REFERENCE.search(text) or may_run_user_code(file.parent / named[1], [text]):
            return True
    return False


def _is_text(file: Path) -> bool:
    """Whether a pipeline is a text, not a program."""
    return file.suffix.lower() in (*_SQL, *_YAML)


def _are_added() -> bool:
    """Whether other packages add connectors or formats."""
    from flowrun.connectors import registry as connectors
    from flowrun.connectors.formats import registry as formats

    added = set(connectors.connector_names()) - set(connectors.BUILT_IN)
    return bool(added or set(formats.format_names()) - set(formats.BUILT_IN))
