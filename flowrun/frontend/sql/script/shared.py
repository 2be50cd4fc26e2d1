"""What a project declares before a script: only declarations, and what the script declares itself comes before them."""

from __future__ import annotations

from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.shared_parts import SharedParts
from flowrun.frontend.sql.catalog import Catalog, TablePath
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.functions import function_called
from flowrun.frontend.sql.script.statement_reader import names_mentioned
from flowrun.frontend.sql.script.tables import ScriptTables
from flowrun.frontend.sql.script.text import JoinedText, ScriptText
from flowrun.frontend.sql.spans import FlinkSyntaxError, Span, error_at
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.operators.function_scope import FunctionScope

_DECLARATIONS = (
    statements.CreateTable,
    statements.CreateView,
    statements.CreateFunction,
    statements.CreateCatalog,
)


class SharedDeclarations:
    """Tables, views and functions of a project's files.

    Args:
        script: the text, with those files before it if there are any.
        catalog: what is declared.
        tables: those among it.
    """

    def __init__(self, script: ScriptText, catalog: Catalog, tables: ScriptTables) -> None:
        self._script = script
        self._own_start = script.own_start if isinstance(script, JoinedText) else 0
        self._catalog = catalog
        self._tables = tables
        self._functions: set[str] = set()

    def check(self, read: statements.ReadStatement) -> None:
        """Raise ExpressionError if a statement of the project's files does more than declare something."""
        if not self._is_shared(read.span):
            return
        made = read.statement
        if not isinstance(made, _DECLARATIONS) or read.explained or getattr(made, "query", None) is not None:
            if isinstance(made, statements.CreateView):
                return
            raise error_at(
                "a file of the project's tables can only declare: CREATE TABLE, VIEW, FUNCTION or CATALOG",
                read.span,
                "queries belong in a pipeline, and settings under settings: of flowrun.yaml",
            )

    def declare_functions(self, shared: SharedParts, scope: FunctionScope, diagnostics: Diagnostics) -> list[str]:
        """Declare those of a project's functions that the script mentions; gives the names of those that are wrong, which is reported."""
        wrong: list[str] = []
        try:
            mentioned = {name.upper() for name in names_mentioned(self._script.text)}
        except FlinkSyntaxError:
            return wrong  # what is not closed is reported with its statement
        for name, entry in shared.functions.items():
            if name.upper() not in mentioned or not isinstance(entry.value, YamlScalar):
                continue
            try:
                self._catalog.functions[name.upper()] = function_called(name, entry.value.text, scope)
            except ExpressionError as error:
                diagnostics.error(error.message, entry.value.location, hint=error.hint)
                wrong.append(name.upper())
            self._functions.add(name.upper())
        return wrong

    def give_way(self, path: TablePath, span: Span) -> None:
        """Forget a table or view of the project that the script declares anew, at `span`."""
        existing = self._catalog.declared(path)
        if existing is None or existing.location is None or self._is_shared(span):
            return
        if existing.location.file != self._script.origin.file:
            self._catalog.forget(path)
            self._tables.forget(path)

    def give_way_to_function(self, name: str, span: Span) -> None:
        """Forget a function of the project, by its name in upper case, that the script declares anew, at `span`."""
        if self._is_shared(span):
            self._functions.add(name)
        elif name in self._functions:
            self._functions.discard(name)
            self._catalog.functions.pop(name, None)

    def _is_shared(self, span: Span) -> bool:
        return span[0] < self._own_start
