"""What is wrong with a text, and what it declares: as `flowrun validate` finds it, while the text is being written.

Variables that have no value here are left open: problems of lines that name one are not told, as the value may be right.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import accumulate
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, FlowrunError, Location, PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline import SQL_SUFFIXES, project_of, script_catalogs
from flowrun.frontend.pipeline_tests.declaration import TESTS
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.known_catalogs import KnownCatalogs
from flowrun.frontend.sql.script.statement_parser import FailedStatement, read_statements
from flowrun.frontend.sql.script.statement_reader import split_script
from flowrun.frontend.trees.nodes import YamlMapping
from flowrun.frontend.trees.reader import read_yaml
from flowrun.frontend.trees.spec import RecordValue
from flowrun.frontend.yaml.declaration.document import DOCUMENT as PIPELINE
from flowrun.operators.function_loading import forget_changed_modules
from flowrun.plan.nodes import Plan, Sink, walk_plan
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.editing.documents import document_of
from flowrun.runners.editing.own_functions import own_functions

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_DECLARES = (statements.CreateTable, statements.CreateView, statements.CreateFunction)
_NEEDED = (*_DECLARES, statements.CreateCatalog, statements.Use, statements.Drop)
"""What a script needs to know its tables."""
_NAMED = re.compile(r"""^(\s+)("[^"]*"|'[^']*'|[A-Za-z_][\w-]*)\s*:""")
_SECTIONS = ("sources", "steps", "functions")
_SECTION = re.compile(rf"^({'|'.join(_SECTIONS)})\s*:")


@record
class Analysis:
    """A text as it stands.

    Attributes:
        problems: errors and warnings, with places.
        tables: sources, steps, tables and views, with their columns. Of a script with errors: those that it declares without any.
        places: name of what is declared → where.
        is_right: whether it has no error, so that `tables` are all there are.
        catalogs: those that a script makes known.
        functions: in Python, of the text and of its project: how each is begun, and how it is used.
    """

    problems: tuple[Diagnostic, ...] = ()
    tables: Mapping[str, Schema] = field(default_factory=dict)
    places: Mapping[str, Location] = field(default_factory=dict)
    is_right: bool = False
    catalogs: KnownCatalogs = KnownCatalogs()
    functions: tuple[tuple[str, str], ...] = ()


def analyse(path: Path, text: str) -> Analysis:
    """A pipeline as an editor has it; the file is not read. Python functions that it names are imported, as when it is validated, and
    anew if their files have changed. Catalogs are asked for the tables that it names.

    Of a project and of tests it is told what is wrong with the document alone, of YAML that is not flowrun's nothing.
    """
    if path.suffix.lower() not in SQL_SUFFIXES:
        document = document_of(path, text)
        if document is not PIPELINE:
            return _of_document(document, SourceText(str(path), text))
    open_names = {name for name in _VARIABLE.findall(text) if name not in os.environ}
    variables = {name: name for name in open_names}
    places = dict(_places(path, text))
    forget_changed_modules()
    found = _analysed(path, text, variables, open_names, places)
    found = replace(found, functions=tuple(own_functions(path, text)))
    return (
        found if path.suffix.lower() not in SQL_SUFFIXES else replace(found, catalogs=_catalogs(path, text, variables))
    )


def _catalogs(path: Path, text: str, variables: Mapping[str, str]) -> KnownCatalogs:
    """The catalogs of a script; of one whose project has errors, which are told, none."""
    try:
        return script_catalogs(SourceText(str(path), text), path.parent, variables, {}, project_of(path))
    except PipelineError:
        return KnownCatalogs()


def _analysed(
    path: Path, text: str, variables: Mapping[str, str], open_names: set[str], places: Mapping[str, Location]
) -> Analysis:
    try:
        compiled = compile_pipeline(path, variables, {}, text=text)
    except PipelineError as error:
        is_sql = path.suffix.lower() in SQL_SUFFIXES
        tables = _declared_tables(path, text, variables) if is_sql else {}
        return Analysis(_told(error.diagnostics, path, text, open_names), tables, places)
    except FlowrunError as error:
        return Analysis((Diagnostic(error.message, Location(str(path), 1, 1), hint=error.hint),), {}, places)
    tables = compiled.tables if path.suffix.lower() in SQL_SUFFIXES else dict(_nodes(compiled.plan))
    return Analysis(_told(compiled.warnings, path, text, open_names), tables, places, is_right=True)


def _declared_tables(path: Path, text: str, variables: Mapping[str, str]) -> Mapping[str, Schema]:
    """The tables and views that a script with errors declares, without those declarations that have some."""
    kept = [part for part in (text[slice(*cut.span)] for cut in split_script(text)) if _declares(part)]
    while kept:
        ends = list(accumulate(part.count("\n") + 2 for part in kept))
        try:
            return compile_pipeline(path, variables, {}, text="".join(f"{part}\n;\n" for part in kept)).tables
        except PipelineError as error:
            wrong = {bisect_left(ends, p.location.line) for p in error.diagnostics if p.location is not None}
            right = [part for number, part in enumerate(kept) if number not in wrong]
            kept = right if len(right) < len(kept) else []
        except FlowrunError:
            break
    return {}


def _declares(statement: str) -> bool:
    return all(
        not isinstance(r, FailedStatement) and isinstance(r.statement, _NEEDED) for r in read_statements(statement)
    )


def _of_document(document: RecordValue | None, source: SourceText) -> Analysis:
    """Of a document that is no pipeline; None: that is not flowrun's."""
    from flowrun.frontend.pipeline_tests.document import check_tests  # few texts are those of tests or projects
    from flowrun.frontend.project.reading import read_document

    if document is None:
        return Analysis()
    try:
        check_tests(source) if document is TESTS else read_document(source)
    except PipelineError as error:
        return Analysis(error.diagnostics)
    return Analysis(is_right=True)


def _told(problems: tuple[Diagnostic, ...], path: Path, text: str, open_names: set[str]) -> tuple[Diagnostic, ...]:
    lines = text.split("\n")

    def is_open(problem: Diagnostic) -> bool:
        place = problem.location
        line = "" if place is None or not 0 < place.line <= len(lines) else lines[place.line - 1]
        return any(f"${{{name}}}" in line for name in open_names)

    here = (p for p in problems if p.location is None or p.location.file == str(path))
    return tuple(p for p in here if not is_open(p))


def _nodes(plan: Plan) -> Iterator[tuple[str, Schema]]:
    for node in walk_plan(plan):
        if node.hints.name is not None and not isinstance(node, Sink):
            yield node.hints.name, node.schema


def _places(path: Path, text: str) -> Iterator[tuple[str, Location]]:
    if path.suffix.lower() not in SQL_SUFFIXES:
        yield from _yaml_places(path, text)
        return
    for read in read_statements(text):
        if not isinstance(read, FailedStatement) and isinstance(read.statement, _DECLARES):
            name = read.statement.name[-1]
            start, end = name.span
            before = text[:start]
            line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
            yield name.text, Location(str(path), line, column, end - start)


def _yaml_places(path: Path, text: str) -> Iterator[tuple[str, Location]]:
    """Names below `sources`, `steps` and `functions`, by the lines of a text that is no YAML as yet."""
    source = SourceText(str(path), text)
    tree = read_yaml(source, Diagnostics(source))
    if isinstance(tree, YamlMapping):
        sections = (entry.value for entry in tree.entries if entry.name in _SECTIONS)
        yield from (
            (e.name, e.key.location)
            for section in sections
            if isinstance(section, YamlMapping)
            for e in section.entries
        )
        return
    depth: int | None = None
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line[0].isspace():
            inside, depth = bool(_SECTION.match(line)), None
            continue
        found = _NAMED.match(line)
        if not inside or found is None:
            continue
        depth = len(found[1]) if depth is None else depth
        if len(found[1]) == depth:
            yield found[2].strip("\"'"), Location(str(path), number, depth + 1, len(found[2]))
