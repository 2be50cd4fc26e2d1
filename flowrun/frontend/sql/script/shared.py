"""What a project declares before a script: only declarations, and what the script declares itself comes before them."""

from __future__ import annotations

from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.shared_parts import SharedParts
from flowrun.frontend.sql.catalog import Catalog, TablePath
from flowrun.frontend.sql.grammar.tables_named import tables_named
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.functions import function_called
from flowrun.frontend.sql.script.shared_sources import source_script
from flowrun.frontend.sql.script.statement_parser import FailedStatement, name_given, read_statements
from flowrun.frontend.sql.script.statement_reader import Slice, names_called
from flowrun.frontend.sql.script.tables import ScriptTables
from flowrun.frontend.sql.script.text import JoinedText, ScriptText, fill_script, joined
from flowrun.frontend.sql.spans import FlinkSyntaxError, Span, error_at
from flowrun.frontend.trees.interpolation import Interpolation
from flowrun.frontend.trees.nodes import YamlEntry, YamlScalar
from flowrun.operators.function_scope import FunctionScope

_DECLARATIONS = (
    statements.CreateTable,
    statements.CreateView,
    statements.CreateFunction,
    statements.CreateCatalog,
)


def with_shared_scripts(
    script: ScriptText, shared: SharedParts, references: References, diagnostics: Diagnostics
) -> tuple[ScriptText, list[str]]:
    """A script behind the project's files, and these behind those of its sources that any of them reads; and the names of those that
    SQL has no words for, which is reported.

    Args:
        script: the script.
        shared: what the project gives.
        references: the script's.
        diagnostics: receives what is wrong with references in the project's text, and what of its sources cannot be said in SQL.
    """
    theirs = shared.references(references)
    whole = joined([fill_script(text, theirs, diagnostics) for text in shared.scripts], script)
    wanted = _tables_wanted(whole.text) if any(name in whole.text for name in shared.sources) else set()
    filling = Interpolation(theirs)
    entries = [YamlEntry(e.key, filling.apply(e.value, diagnostics)) for n, e in shared.sources.items() if n in wanted]
    made = {entry.name: source_script(entry, shared.source, diagnostics) for entry in entries}
    parts = [part for _, part in whole.parts] if isinstance(whole, JoinedText) else [script]
    said = [text for text in made.values() if text is not None]
    return joined([*said, *parts[:-1]], script), [name for name, text in made.items() if text is None]


def _tables_wanted(text: str) -> set[str]:
    """Names of the tables that statements need and that none of them declares; of what cannot be read nothing is known.

    >>> sorted(_tables_wanted("CREATE VIEW v AS SELECT a AS x FROM a; INSERT INTO o SELECT * FROM v JOIN b ON TRUE; DESCRIBE c"))
    ['a', 'b', 'c', 'o']
    """
    wanted: set[str] = set()
    declared: set[str | None] = set()
    for read in read_statements(text):
        declared.add(name_given(read))
        if isinstance(read, FailedStatement):
            continue
        made = read.statement.statement if isinstance(read.statement, statements.Explain) else read.statement
        query = getattr(made, "query", None)
        if isinstance(query, Slice):
            wanted |= {table.text for table in tables_named(query.text)}
        match made:
            case statements.Insert(table=name):
                wanted.add(name[-1].text)
            case statements.CreateTable(like=statements.LikeSyntax(table=name)):
                wanted.add(name[-1].text)
            case statements.Describe(name=name) | statements.ShowColumns(name=name) | statements.ShowCreate(name=name):
                wanted.add(name[-1].text)
    return wanted - declared


class SharedDeclarations:
    """Tables, views and functions of a project.

    Args:
        script: the text, with what the project declares before it if there is anything.
        catalog: what is declared.
        tables: those among it.
    """

    def __init__(self, script: ScriptText, catalog: Catalog, tables: ScriptTables) -> None:
        self._script = script
        self._own_start = script.own_start if isinstance(script, JoinedText) else 0
        self._catalog = catalog
        self._tables = tables
        self._functions: set[str] = set()
        self._sources_file: str | None = None

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
        """Declare those of a project's functions that the script calls; gives the names of those that are wrong, which is reported."""
        self._sources_file = shared.source.file
        wrong: list[str] = []
        try:
            called = {name.upper() for name in names_called(self._script.text)}
        except FlinkSyntaxError:
            return wrong  # what is not closed is reported with its statement
        for name, entry in shared.functions.items():
            if name.upper() not in called or not isinstance(entry.value, YamlScalar):
                continue
            try:
                self._catalog.functions[name.upper()] = function_called(name, entry.value.text, scope)
            except ExpressionError as error:
                diagnostics.error(error.message, entry.value.location, hint=error.hint)
                wrong.append(name.upper())
            self._functions.add(name.upper())
        return wrong

    def give_way(self, path: TablePath, span: Span) -> None:
        """Forget a table or view that is declared anew, at `span`: the script's own comes before the project's, and of these one of its
        files before a source.
        """
        existing = self._catalog.declared(path)
        at = None if existing is None else existing.location
        if at is None or at.file == self._script.locate(*span).file:
            return
        if not self._is_shared(span) or at.file == self._sources_file:
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
