"""Statements of SQL one after the other: what was declared before is known to those that come later, and each one runs for itself.

A session is a script that grows. A statement is compiled behind all that have declared something; queries and INSERTs are not kept, so
what they did is not done again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, PipelineError, Severity
from flowrun.frontend.pipeline import project_of, script_catalogs
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.grammar.tokens import is_word
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.known_catalogs import KnownCatalogs
from flowrun.frontend.sql.script.statement_parser import FailedStatement, read_statements
from flowrun.frontend.sql.script.statement_reader import StatementTokens, split_script
from flowrun.runners.compile import CompiledPipeline, compile_pipeline

FILE = Path("session.sql")
"""What the texts of a session are called where they are kept or sent."""
_DECLARE = (
    statements.CreateTable, statements.CreateView, statements.CreateFunction, statements.CreateCatalog, statements.Drop, statements.Use,
    statements.AddJar,
)  # fmt: skip


@record
class TypedText:
    """Text as it was typed, cut into statements.

    Attributes:
        statements: those that are complete, without their semicolons.
        rest: what follows the last semicolon; empty: nothing but blanks and comments.
    """

    statements: tuple[str, ...]
    rest: str


def cut(text: str) -> TypedText:
    """Cut a text at the semicolons that end statements; a statement set is one.

    >>> cut("SHOW TABLES; SELECT ';'")
    TypedText(statements=('SHOW TABLES',), rest="SELECT ';'")
    """
    found: list[str] = []
    opened: int | None = None
    parts = list(split_script(text))
    for part in parts:
        start, end = part.span
        ended = part.error is None and text[end:].lstrip().startswith(";")
        if opened is None and _opens_set(part):
            opened = start
        if opened is not None and not _is_word(part, "END"):
            continue
        if not ended and part is parts[-1]:
            return TypedText(tuple(found), text[start if opened is None else opened :])
        found.append(text[start if opened is None else opened : end])
        opened = None
    return TypedText(tuple(found), "" if opened is None else text[opened:])


def placed_statements(text: str) -> Iterator[tuple[str, str]]:
    """The statements of a text, also of one that ends without a semicolon, each with what stands before it.

    >>> list(placed_statements("SHOW TABLES; SELECT 1"))
    [('SHOW TABLES', ''), ('SELECT 1', 'SHOW TABLES; ')]
    """
    typed, at = cut(text), 0
    for statement in (*typed.statements, *filter(None, [typed.rest])):
        at = text.index(statement, at)
        yield statement, text[:at]
        at += len(statement)


def _opens_set(part: StatementTokens) -> bool:
    words = [token.text.upper() for token in part.tokens[:6]]
    return "STATEMENT" in words and "BEGIN" in words and not _is_word(part, "SELECT")


def _is_word(part: StatementTokens, word: str) -> bool:
    return bool(part.tokens) and is_word(part.tokens[0], word)


class SqlSession:
    """What was declared so far.

    Args:
        variables: values for `${NAME}`.
        overrides: values by path that replace those of scripts.
    """

    def __init__(self, variables: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        self._variables = variables
        self._overrides = overrides
        self._declared: list[str] = []
        self._catalogs: tuple[int, KnownCatalogs] = (0, KnownCatalogs())
        self.tables: Mapping[str, Schema] = {}
        """The tables and views that are known now, with their columns."""

    @property
    def catalogs(self) -> KnownCatalogs:
        """The catalogs that are known now. Nothing is asked of them."""
        if self._catalogs[0] != len(self._declared):
            source = SourceText(str(FILE), "".join(f"{text}\n;\n" for text in self._declared))
            found = script_catalogs(source, FILE.parent, self._variables, self._overrides, project_of(FILE))
            self._catalogs = len(self._declared), found
        return self._catalogs[1]

    def compile(self, statement: str, before: str = "", file: str = "statement") -> CompiledPipeline:
        """One statement, behind what was declared. What it declares is kept; whatever else it does is up to the caller.

        Args:
            statement: its text, without a semicolon.
            before: what stands before it in the text that it is of.
            file: what messages call this text.

        Raises:
            PipelineError: it is wrong; places are those in the text that it is of.
            UnsupportedPlanError: no operator can do what it asks for.
        """
        head = "".join(f"{text}\n;\n" for text in self._declared)
        placed = re.sub(r"[^\n]", " ", before) + statement
        try:
            compiled = compile_pipeline(FILE, self._variables, self._overrides, text=head + placed)
        except PipelineError as error:
            raise PipelineError(_moved(error.diagnostics, head, file)) from error
        warnings = _moved(compiled.warnings, head, file)
        if not compiled.runs:  # that nothing runs need not be told of a declaration
            warnings = tuple(warning for warning in warnings if warning.location is not None)
        self._keep(statement, head)
        self.tables = compiled.tables
        return replace(compiled, warnings=warnings)

    def _keep(self, statement: str, head: str) -> None:
        for read in read_statements(statement):
            if isinstance(read, FailedStatement):
                continue
            kind = read.statement
            if isinstance(kind, statements.CreateTable) and kind.query is not None:
                name = ".".join(f"`{part.text}`" for part in kind.name)
                asked = f"{head}{statement};\nSHOW CREATE TABLE {name};"  # its rows are written once only
                shown = compile_pipeline(FILE, self._variables, self._overrides, text=asked).outputs
                self._declared.append(shown[-1].rstrip().rstrip(";"))
            elif isinstance(kind, _DECLARE) or (
                isinstance(kind, statements.SetOption | statements.ResetOption) and _changes(kind)
            ):
                self._declared.append(statement)


def _changes(kind: statements.SetOption | statements.ResetOption) -> bool:
    """Whether it does not only show what is set."""
    return isinstance(kind, statements.ResetOption) or kind.option is not None


def _moved(diagnostics: tuple[Diagnostic, ...], head: str, file: str) -> tuple[Diagnostic, ...]:
    """Problems with places in the text of the statement instead of the whole one; those of what was declared before have been told."""
    lines = head.count("\n")
    moved = []
    for problem in diagnostics:
        place = problem.location
        if place is not None and place.line > lines:
            moved.append(replace(problem, location=replace(place, line=place.line - lines, file=file)))
        elif place is None or problem.severity is Severity.ERROR:
            moved.append(problem)
    return tuple(moved)
