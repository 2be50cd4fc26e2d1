"""The Python functions that a pipeline or its project names: how they are called, and what their docstrings say."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from flowrun.errors import ExpressionError, FlowrunError, PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline import SQL_SUFFIXES, project_of
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import UserFunction
from flowrun.frontend.sql.script.functions import function_called
from flowrun.frontend.sql.script.statement_parser import FailedStatement, read_statements
from flowrun.frontend.sql.script.statements import CreateFunction
from flowrun.frontend.trees.nodes import YamlMapping, YamlScalar
from flowrun.frontend.trees.reader import read_yaml
from flowrun.operators.function_scope import FunctionScope, functions_beside


def own_functions(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """`NAME(` of each function that can be imported, with `usage: documentation`, as `function_words` gives those of SQL.

    Args:
        path: of the text.
        text: all of it.
    """
    try:
        project = project_of(path)
    except PipelineError:  # which is told already
        project = None
    folders = (path.parent, *(() if project is None else (Path(project.directory),)))
    scope = functions_beside(*folders)(())
    named = dict(_of_project(path)) if project is not None else {}
    named |= dict(
        _of_script(text) if path.suffix.lower() in SQL_SUFFIXES else _of_document(SourceText(str(path), text))
    )
    for name, reference in named.items():
        try:
            function = function_called(name, reference, scope)
            yield f"{name}(", f"{_usage(function)}: {_documentation(function, scope)}"
        except (ExpressionError, FlowrunError):
            continue  # which is told as a problem


def _of_project(path: Path) -> Iterator[tuple[str, str]]:
    from flowrun.frontend.project_file import project_file  # few pipelines are in a project

    file = project_file(path.parent)
    if file is not None:
        yield from _of_document(SourceText(str(file), file.read_text(encoding="utf-8", errors="replace")))


def _of_document(source: SourceText) -> Iterator[tuple[str, str]]:
    tree = read_yaml(source, Diagnostics(source))
    entry = tree.entry("functions") if isinstance(tree, YamlMapping) else None
    if entry is not None and isinstance(entry.value, YamlMapping):
        for function in entry.value.entries:
            if isinstance(function.value, YamlScalar):
                yield function.name, function.value.text


def _of_script(text: str) -> Iterator[tuple[str, str]]:
    for read in read_statements(text):
        if not isinstance(read, FailedStatement) and isinstance(read.statement, CreateFunction):
            yield read.statement.name[-1].text, read.statement.reference


def _usage(function: UserFunction) -> str:
    """How it is called, and what it gives.

    >>> from flowrun.core.types import BIGINT, STRING
    >>> from flowrun.frontend.sql.catalog import FunctionKind
    >>> _usage(UserFunction("SIZE", FunctionKind.SCALAR, "functions:size", (BIGINT,), STRING))
    'SIZE(BIGINT) → STRING'
    """
    forms = ((function.arguments, function.result), *function.overloads)
    return "\n".join(
        f"{function.name}({'…' if arguments is None else ', '.join(map(str, arguments))}) → {result}"
        for arguments, result in forms
    )


def _documentation(function: UserFunction, scope: FunctionScope) -> str:
    """The first paragraph of its docstring, on one line; without one where it comes from."""
    written = getattr(scope.load(function.reference), "__doc__", None)
    first = inspect.cleandoc(written).partition("\n\n")[0] if isinstance(written, str) else ""
    return " ".join(first.split()) or f"A function in Python, {function.reference}."
