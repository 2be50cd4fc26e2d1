"""A whole SQL script as a plan: filling in variables, reading statements one after the other, all problems collected.

All INSERTs and SELECTs of a script run as one job, as in a statement set; a table that several of them read is read once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.errors import ExpressionError, PipelineError, UnsupportedPlanError, did_you_mean, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE, Catalog, CatalogTable, CatalogView
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import is_mark, is_name, is_quoted, scan
from flowrun.frontend.sql.queries.from_text import BoundQuery, bind_query
from flowrun.frontend.sql.queries.order_and_limit import with_optional_order
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.column_expressions import ColumnExpressions
from flowrun.frontend.sql.script.functions import user_function
from flowrun.frontend.sql.script.inserts import insert_sink, print_sink
from flowrun.frontend.sql.script.letter_sinks import with_letter_sinks
from flowrun.frontend.sql.script.listings import created_table, created_view, described_table, described_view, listed
from flowrun.frontend.sql.script.settings import (
    IDLE_TIMEOUT,
    NAME,
    WATERMARK_INTERVAL,
    ScriptOverrides,
    ScriptSettings,
    read_overrides,
)
from flowrun.frontend.sql.script.statement_parser import FailedStatement, read_statements
from flowrun.frontend.sql.script.statement_reader import Slice
from flowrun.frontend.sql.script.tables import DeclaredTable, ScriptTables
from flowrun.frontend.sql.script.text import ScriptText, fill_script, report
from flowrun.frontend.sql.spans import error_at
from flowrun.operators.function_scope import FunctionScopes, functions_beside
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Calc, NodeHints, Plan, Settings, Sink, with_constraints
from flowrun.plan.tables import TableRole


@record
class ReadScript:
    """A script without errors: its plan, and what its DESCRIBE, SHOW and EXPLAIN statements answer, in order."""

    plan: Plan
    outputs: tuple[str, ...] = ()


def read_script(
    source: SourceText,
    *,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    folder: Path,
    diagnostics: Diagnostics,
    functions: FunctionScopes | None = None,
) -> ReadScript | None:
    """The plan of a script; None if it has errors, which `diagnostics` then holds together with all warnings.

    Args:
        source: the script.
        variables: values for `${NAME}`; they win over the environment.
        overrides: values for `settings.…` and `tables.<name>.<option>`, which win over the script's.
        environment: environment variables.
        folder: of the script: secret files are looked up from here.
        diagnostics: receives every problem.
        functions: where Python functions come from; None: from modules in the folder, and from packages of the settings.
    """
    references = References(variables, environment, folder)
    script = fill_script(source, references, diagnostics)
    given = read_overrides(overrides, diagnostics)
    reading = _Script(script, given, functions or functions_beside(folder), diagnostics)
    for read in read_statements(script.text):
        reading.read(read)
    references.warn_unused("the script", diagnostics)
    return reading.finish()


class _NoticedError(Exception):
    """The statement is wrong, or needs something that is; that has been reported."""


class _Script:
    """Reads statements in order."""

    def __init__(
        self, script: ScriptText, overrides: ScriptOverrides, functions: FunctionScopes, diagnostics: Diagnostics
    ) -> None:
        self._script = script
        self._overrides = overrides
        self._diagnostics = diagnostics
        self._functions = functions
        self._catalog = Catalog()
        self._expressions = ColumnExpressions(self._catalog)
        self._tables = ScriptTables(script, self._catalog, diagnostics, self._expressions.bind, overrides.tables)
        self._settings = ScriptSettings(script, diagnostics)
        self._job_settings: dict[str, statements.OptionSyntax] | None = None
        self._sinks: list[Sink] = []
        self._explained: list[Sink] = []
        self._outputs: list[str] = []
        self._names: set[str] = set()
        self._poisoned: set[str] = set()
        self._everything: set[str] = set()

    # -- statements ----------------------------------------------------------------------------------------------------------

    def read(self, read: statements.ReadStatement | FailedStatement) -> None:
        """One statement; what is wrong with it is reported."""
        if read.span != (0, 0) and any(p.unresolved for p in self._script.pieces_in(*read.span)):
            self._poison(_creates(read))
            return
        if isinstance(read, FailedStatement):
            self._poison(read.creates)
            report(read.error, self._script, self._diagnostics)
            return
        if not read.explained and self._explained:
            self._explain(self._explained)
            self._explained = []
        try:
            self._check_secrets(read)
            self._run(read.statement, read)
        except ExpressionError as error:
            self._poison(_creates(read))
            report(error, self._script, self._diagnostics)
        except _NoticedError:
            self._poison(_creates(read))

    def _run(self, statement: statements.Statement, read: statements.ReadStatement) -> None:
        match statement:
            case statements.CreateTable():
                self._create_table(statement)
            case statements.CreateView():
                self._create_view(statement)
            case statements.CreateFunction():
                self._create_function(statement)
            case statements.Insert() | statements.Select():
                sink = self._sink(statement)
                (self._explained if read.explained else self._sinks).append(sink)
                self._keep_settings()
            case statements.Explain(statement=inner):
                self._explain([self._sink(inner)])
            case statements.SetOption() | statements.ResetOption():
                self._set(statement)
            case statements.Drop():
                self._drop(statement)
            case statements.Describe() | statements.Show() | statements.ShowColumns() | statements.ShowCreate():
                self._outputs.append(self._answer(statement))
            case statements.AddJar(span=span):
                hint = "formats and connectors are built in; functions are Python modules beside the script"
                self._diagnostics.warning(
                    "jars are not used: this has no effect", self._script.locate(*span), hint=hint
                )
            case statements.UseDefault():
                pass

    def finish(self) -> ReadScript | None:
        """The plan of everything that was read."""
        if self._explained:
            self._explain(self._explained)
        self._check_overridden_tables()
        name = self._settings.text(NAME) or Path(self._script.file).stem
        settings = self._settings_of_job()
        if self._diagnostics.has_errors:
            return None
        if not self._sinks and not self._outputs:
            hint = "end it with INSERT INTO … or SELECT …"
            self._diagnostics.warning("nothing in this script runs or answers", None, hint=hint)
        plan = self._recognised(Plan(name, with_constraints(self._sinks, settings), settings, self._script.origin.text))
        if plan is not None:
            plan = with_letter_sinks(plan, self._tables, self._script, self._expressions.constant, self._diagnostics)
        return None if plan is None or self._diagnostics.has_errors else ReadScript(plan, tuple(self._outputs))

    def _keep_settings(self) -> None:
        """The settings as they are now are those of the job; it is one job, which has each setting once."""
        now, before = self._settings.values, self._job_settings
        for key, option in now.items() if before is not None else ():
            each_its_own = key in (IDLE_TIMEOUT, WATERMARK_INTERVAL)
            if not each_its_own and before is not None and (key not in before or before[key].value != option.value):
                message = f"'{key}' counts for the queries before as well: all queries of a script run as one job"
                self._diagnostics.warning(
                    message, self._script.locate(*option.key_span), hint="set it before the first query"
                )
        self._job_settings = dict(now)

    def _settings_of_job(self) -> Settings:
        values = self._settings.values if self._job_settings is None else self._job_settings
        return self._settings.settings(values, self._overrides.settings)

    def _recognised(self, plan: Plan) -> Plan | None:
        """The plan with the special forms found; None if it cannot run, which is reported."""
        if not plan.sinks:
            return plan
        # Imported here: a script that only describes needs none of it.
        from flowrun.plan.recognition import recognise

        try:
            return recognise(plan)
        except PipelineError as error:
            for one in error.diagnostics:
                self._diagnostics.error(one.message, one.location, hint=one.hint)
        except UnsupportedPlanError as error:
            self._diagnostics.error(error.message, None, hint=error.hint)
        return None

    # -- CREATE and DROP -----------------------------------------------------------------------------------------------------

    def _create_table(self, statement: statements.CreateTable) -> None:
        name = self._new_name(statement.name, statement.if_not_exists)
        if name is None:
            return
        if statement.like is not None:
            self._reject_poisoned(statement.like.table[-1].text)
        if statement.query is None:
            self._tables.declare(name, statement.name[-1].span, statement)
            return
        if statement.columns or statement.partitions or statement.like:
            hint = f"declare {name} first, then INSERT INTO {name} SELECT …"
            raise error_at("CREATE TABLE … AS takes its columns from the query", statement.name[-1].span, hint)
        bound = self._bind(statement.query, self._unique(name))
        made = self._tables.declare_like_query(name, statement.name[-1].span, statement, bound.node.schema)
        insert = statements.Insert(statement.name, statement.query)
        self._sinks.append(self._insert(insert, made, bound, name))
        self._keep_settings()

    def _create_view(self, statement: statements.CreateView) -> None:
        if statement.replace and len(statement.name) == 1:
            self._catalog.relations.pop(statement.name[0].text, None)
        name = self._new_name(statement.name, statement.if_not_exists)
        if name is None:
            return
        bound = self._bind(statement.query, self._unique(name))
        node = with_optional_order(bound.node)
        names = tuple(n.text for n in statement.columns) or bound.names
        span = statement.name[-1].span
        if len(names) != len(node.schema):
            raise error_at(f"view '{name}' has {len(names)} columns, the query gives {len(node.schema)}", span)
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            hint = "rename one of them with AS, or name the view's columns: CREATE VIEW v (a, b) AS …"
            raise error_at(f"column '{twice}' occurs more than once in view '{name}'", span, hint)
        if names != node.schema.names:
            schema = Schema(tuple(Field(n, f.type, f.nullable) for n, f in zip(names, node.schema, strict=True)))
            columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
            hints = NodeHints(name=f"{name}.columns", place=f"{name}.columns", location=self._script.locate(*span))
            node = Calc(schema, hints, node, columns)
        self._everything.add(name)
        self._catalog.relations[name] = CatalogView(name, node, self._script.locate(*span), statement.query.text)

    def _create_function(self, statement: statements.CreateFunction) -> None:
        name = self._local(statement.name).upper()
        if name in self._catalog.functions:
            if statement.if_not_exists:
                return
            raise error_at(
                f"function '{statement.name[-1].text}' exists already",
                statement.name[-1].span,
                "DROP FUNCTION it before",
            )
        packages = self._settings.packages(self._overrides.settings)
        self._catalog.functions[name] = user_function(statement, self._functions(packages))
        self._poisoned.discard(name)

    def _drop(self, statement: statements.Drop) -> None:
        name = self._local(statement.name)
        if statement.kind is statements.ObjectKind.FUNCTION:
            found: object = self._catalog.functions.pop(name.upper(), None)
            known = [f.name for f in self._catalog.functions.values()]
        else:
            wanted = CatalogTable if statement.kind is statements.ObjectKind.TABLE else CatalogView
            known = [n for n, r in self._catalog.relations.items() if isinstance(r, wanted)]
            found = name in known or None
            if found:
                del self._catalog.relations[name]
                self._tables.forget(name)
        if found is None and not statement.if_exists and name not in self._poisoned:
            what = statement.kind.value
            raise error_at(
                f"{what} '{name}' does not exist",
                statement.name[-1].span,
                did_you_mean(name, known) or "DROP … IF EXISTS",
            )
        self._poisoned.discard(name)

    def _new_name(self, path: tuple[Name, ...], if_not_exists: bool) -> str | None:
        """The name that a statement may give; None if it is taken and that is fine."""
        name = self._local(path)
        self._everything.add(name)
        existing = self._catalog.relations.get(name)
        if existing is None:
            self._poisoned.discard(name)
            return name
        if if_not_exists:
            return None
        what = "view" if isinstance(existing, CatalogView) else "table"
        where = f" in line {existing.location.line}" if existing.location is not None else ""
        raise error_at(
            f"{what} '{name}' exists already{where}",
            path[-1].span,
            f"choose another name, or DROP {what.upper()} it before",
        )

    def _local(self, path: tuple[Name, ...]) -> str:
        """The last part of a qualified name, the others being the only catalog and database there are."""
        qualifiers = [n.text for n in path[:-1]]
        if qualifiers not in ([], [DEFAULT_DATABASE], [DEFAULT_CATALOG, DEFAULT_DATABASE]):
            shown = ".".join(n.text for n in path)
            raise error_at(
                f"'{shown}' is in a catalog or database that does not exist",
                (path[0].span[0], path[-1].span[1]),
                f"all tables of a script are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}: write {path[-1].text}",
            )
        return path[-1].text

    # -- queries -------------------------------------------------------------------------------------------------------------

    def _sink(self, statement: statements.Insert | statements.Select) -> Sink:
        if isinstance(statement, statements.Select):
            name = self._unique("select")
            bound = self._bind(statement.query, name)
            return print_sink(bound.node, bound.names, statement.query.span, self._script, name)
        target = self._local(statement.table)
        self._reject_poisoned(target)
        relation = self._catalog.relations.get(target)
        made = self._tables.declared(target)
        span = statement.table[-1].span
        if isinstance(relation, CatalogView):
            raise error_at(f"'{target}' is a view, which cannot be written", span, "INSERT INTO a table")
        if relation is None or made is None:
            hint = did_you_mean(target, self._tables.names) or "CREATE TABLE it first"
            self._check_anyway(statement.query)
            raise error_at(f"table '{target}' does not exist", span, hint)
        if statement.hints:
            made = self._tables.with_hints(made, statement.hints, span)
        if statement.overwrite:
            made = self._tables.overwriting(made, span)
        writable = self._tables.check(made, TableRole.SINK)
        name = self._unique(target)
        sink = self._insert(statement, made, self._bind(statement.query, name), name)
        if not writable:
            raise _NoticedError
        return sink

    def _insert(self, statement: statements.Insert, made: DeclaredTable, bound: BoundQuery, name: str) -> Sink:
        return insert_sink(statement, made, bound, self._script, name, self._expressions.constant)

    def _bind(self, query: Slice, name: str) -> BoundQuery:
        """The plan of a query.

        Raises:
            ExpressionError: it is wrong.
            _NoticedError: it names something whose own statement is wrong.
        """
        self._reject_poisoned(*_mentioned(query))
        self._tables.idle_timeout_ms = self._settings.duration_ms(IDLE_TIMEOUT)
        self._tables.watermark_interval_ms = self._settings.duration_ms(WATERMARK_INTERVAL)
        context = QueryContext(name, self._script, self._diagnostics, self._tables.scan)
        return bind_query(query.text, query.start, self._catalog, context)

    def _check_anyway(self, query: Slice) -> None:
        """Report what is wrong with a query whose statement has another error."""
        try:
            self._bind(query, self._unique("query"))
        except ExpressionError as error:
            report(error, self._script, self._diagnostics)
        except _NoticedError:
            pass

    def _unique(self, name: str) -> str:
        """A name that no other statement's steps have."""
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found

    def _explain(self, sinks: list[Sink]) -> None:
        if self._diagnostics.has_errors:
            return
        from flowrun.plan.changelog import changelog_modes
        from flowrun.plan.explain import explain_plan
        from flowrun.plan.join_order import order_by_sizes, table_rows
        from flowrun.plan.rewrites import optimise, rules_with

        plan = self._recognised(Plan(Path(self._script.file).stem, tuple(sinks), self._settings_of_job()))
        if plan is not None:
            optimised = optimise(plan, rules_with(order_by_sizes(table_rows(plan))))
            self._outputs.append(explain_plan(optimised, modes=changelog_modes(optimised)).rstrip("\n"))

    # -- the rest ------------------------------------------------------------------------------------------------------------

    def _set(self, statement: statements.SetOption | statements.ResetOption) -> None:
        if isinstance(statement, statements.ResetOption):
            self._settings.reset(statement.key)
        elif statement.option is None:
            lines = [f"'{o.key}' = '{o.value}'" for o in self._settings.values.values()]
            self._outputs.append("\n".join(lines) or "nothing is set")
        else:
            self._settings.set(statement.option)

    def _answer(
        self, statement: statements.Describe | statements.Show | statements.ShowColumns | statements.ShowCreate
    ) -> str:
        if isinstance(statement, statements.Show):
            return listed(statement.listing, self._catalog, statement.chosen)
        name = self._local(statement.name)
        self._reject_poisoned(name)
        relation, made = self._catalog.relations.get(name), self._tables.declared(name)
        if relation is None:
            hint = did_you_mean(name, self._catalog.relations)
            raise error_at(f"table '{name}' does not exist", statement.name[-1].span, hint)
        if isinstance(statement, statements.Describe | statements.ShowColumns):
            chosen = statement.chosen if isinstance(statement, statements.ShowColumns) else None
            if isinstance(relation, CatalogView):
                return described_view(relation.node.schema, chosen)
            return described_table(_known(made), chosen)
        is_view = isinstance(relation, CatalogView)
        if is_view != (statement.kind is statements.ObjectKind.VIEW):
            other = "VIEW" if is_view else "TABLE"
            raise error_at(f"'{name}' is a {other.lower()}", statement.name[-1].span, f"SHOW CREATE {other} {name}")
        return created_view(relation) if isinstance(relation, CatalogView) else created_table(_known(made))

    def _check_secrets(self, read: statements.ReadStatement) -> None:
        """A secret may only stand in the value of a table's option: elsewhere it would be seen in plans and messages."""
        allowed = (
            [o.value_span for o in read.statement.options] if isinstance(read.statement, statements.CreateTable) else []
        )
        for piece in self._script.pieces_in(*read.span):
            if piece.secret and not any(a <= piece.start and piece.end <= b for a, b in allowed):
                if isinstance(read.statement, statements.SetOption):
                    continue  # which says it itself
                raise error_at("a secret can only be the value of an option in WITH (…)", (piece.start, piece.end))

    def _check_overridden_tables(self) -> None:
        for name in self._overrides.tables:
            if name not in self._everything:
                close = near_matches(name, self._everything)
                hint = f"did you mean 'tables.{close[0]}'?" if close else None
                self._diagnostics.error(f"--set tables.{name}…: there is no table '{name}'", None, hint=hint)

    def _poison(self, name: str | None) -> None:
        """What names this from now on is not looked at: its own statement is wrong, which has been reported."""
        if name is not None:
            self._poisoned.add(name)
            self._everything.add(name)

    def _reject_poisoned(self, *names: str) -> None:
        if any(n in self._poisoned for n in names):
            raise _NoticedError


def _known(made: DeclaredTable | None) -> DeclaredTable:
    assert made is not None
    return made


def _creates(read: statements.ReadStatement | FailedStatement) -> str | None:
    """The name that a statement gives to something."""
    if isinstance(read, FailedStatement):
        return read.creates
    statement = read.statement
    if isinstance(statement, statements.CreateFunction):
        return statement.name[-1].text.upper()
    return statement.name[-1].text if isinstance(statement, statements.CreateTable | statements.CreateView) else None


def _mentioned(query: Slice) -> set[str]:
    """All identifiers in a query; words that are followed by `(` in upper case as well, as names of functions are known by."""
    tokens = list(scan(query.text))
    found = {t.text for t in tokens if is_name(t)}
    called = (a for a, b in itertools.pairwise(tokens) if is_mark(b, "(") and is_name(a) and not is_quoted(a))
    return found | {t.text.upper() for t in called}
