"""A whole SQL script as a plan: filling in variables, reading statements one after the other, all problems collected.

All INSERTs and SELECTs of a script run as one job, as in a statement set; a table that several of them read is read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import field
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.errors import ExpressionError, PipelineError, UnsupportedPlanError, did_you_mean, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.shared_parts import SharedParts, pipeline_references, shared_settings
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import (
    Catalog,
    CatalogTable,
    CatalogView,
    NoticedError,
    columns_of,
)
from flowrun.frontend.sql.queries.from_text import BoundQuery, bind_query
from flowrun.frontend.sql.queries.order_and_limit import with_optional_order
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.answers import Question, ScriptAnswers
from flowrun.frontend.sql.script.catalogs import ScriptCatalogs, marked
from flowrun.frontend.sql.script.column_expressions import ColumnExpressions
from flowrun.frontend.sql.script.functions import user_function
from flowrun.frontend.sql.script.inserts import insert_sink, print_sink
from flowrun.frontend.sql.script.letter_sinks import with_letter_sinks
from flowrun.frontend.sql.script.names import ScriptNames, function_name
from flowrun.frontend.sql.script.settings import (
    IDLE_TIMEOUT,
    NAME,
    WATERMARK_INTERVAL,
    ScriptOverrides,
    ScriptSettings,
    read_overrides,
)
from flowrun.frontend.sql.script.shared import SharedDeclarations, with_shared_scripts
from flowrun.frontend.sql.script.statement_parser import FailedStatement, name_given, read_statements
from flowrun.frontend.sql.script.statement_reader import Slice, names_mentioned
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
    found: Mapping[str, str] = field(default_factory=dict)
    """What catalogs said of the tables that the script names: see `ScriptCatalogs.found`."""
    tables: Mapping[str, Schema] = field(default_factory=dict)
    """The tables and views that the script has declared and not dropped, with their columns."""


def read_script(
    source: SourceText,
    *,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    folder: Path,
    diagnostics: Diagnostics,
    functions: FunctionScopes | None = None,
    kept_tables: Mapping[str, str] | None = None,
    shared: SharedParts | None = None,
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
        kept_tables: what catalogs said when the script was read first (`ReadScript.found`); None: they are asked.
        shared: what its project gives it; None: it is in none.
    """
    references = pipeline_references(shared, variables, environment, folder)
    script = fill_script(source, references, diagnostics)
    unreadable: list[str] = []
    if shared is not None:
        script, unreadable = with_shared_scripts(script, shared, references, diagnostics)
    given = read_overrides(overrides, diagnostics)
    reading = _Script(script, given, functions or functions_beside(folder), diagnostics, kept_tables)
    with closing(reading):
        if shared is not None:
            reading.take_over(shared, references, unreadable)
        for read in read_statements(script.text):
            reading.read(read)
    references.warn_unused("the script", diagnostics)
    return reading.finish()


class _Script:
    """Reads statements in order."""

    def __init__(
        self,
        script: ScriptText,
        overrides: ScriptOverrides,
        functions: FunctionScopes,
        diagnostics: Diagnostics,
        kept_tables: Mapping[str, str] | None,
    ) -> None:
        self._script = script
        self._overrides = overrides
        self._diagnostics = diagnostics
        self._functions = functions
        self._catalog = Catalog()
        self._expressions = ColumnExpressions(self._catalog)
        self._tables = ScriptTables(script, self._catalog, diagnostics, self._expressions.bind, overrides.tables)
        self._catalogs = ScriptCatalogs(script, self._catalog, self._tables, kept_tables)
        self._known = ScriptNames(self._catalog, self._catalogs)
        self._answers = ScriptAnswers(self._catalog, self._tables, self._catalogs)
        self._settings = ScriptSettings(script, diagnostics)
        self._shared = SharedDeclarations(script, self._catalog, self._tables)
        self._job_settings: dict[str, statements.OptionSyntax] | None = None
        self._sinks: list[Sink] = []
        self._explained: list[Sink] = []
        self._outputs: list[str] = []
        self._names: set[str] = set()
        self._is_astray = False
        """Whether the last USE failed: what names without a catalog mean is not known then."""

    def close(self) -> None:
        """Disconnect from catalogs."""
        self._catalogs.close()

    def take_over(self, shared: SharedParts, references: References, unreadable: list[str]) -> None:
        """Begin with a project's settings and the functions that the script calls; names of sources that it cannot read are known."""
        self._settings.project = shared_settings(shared, references, self._diagnostics)
        scope = self._functions(self._settings.packages(self._overrides.settings))
        for name in (*unreadable, *self._shared.declare_functions(shared, scope, self._diagnostics)):
            self._known.poison(name)

    # -- statements ----------------------------------------------------------------------------------------------------------

    def read(self, read: statements.ReadStatement | FailedStatement) -> None:
        """One statement; what is wrong with it is reported."""
        if read.span != (0, 0) and any(p.unresolved for p in self._script.pieces_in(*read.span)):
            self._known.poison(name_given(read))
            return
        if isinstance(read, FailedStatement):
            self._known.poison(read.creates)
            report(read.error, self._script, self._diagnostics)
            return
        if not read.explained and self._explained:
            self._explain(self._explained)
            self._explained = []
        try:
            self._check_secrets(read)
            self._shared.check(read)
            if self._is_astray and not isinstance(read.statement, _ANYWHERE):
                raise NoticedError
            self._run(read.statement, read)
        except ExpressionError as error:
            self._known.poison(name_given(read))
            report(error, self._script, self._diagnostics)
        except NoticedError:
            self._known.poison(name_given(read))

    def _run(self, statement: statements.Statement, read: statements.ReadStatement) -> None:
        match statement:
            case statements.CreateTable():
                self._create_table(statement)
            case statements.CreateView():
                self._create_view(statement)
            case statements.CreateFunction():
                self._create_function(statement)
            case statements.CreateCatalog():
                self._catalogs.create(statement)
                self._known.forgive(statement.name.text)
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
            case (
                statements.Describe()
                | statements.DescribeCatalog()
                | statements.Show()
                | statements.ShowColumns()
                | statements.ShowCreate()
            ):
                self._answer(statement, read)
            case statements.AddJar(span=span):
                hint = "formats and connectors are built in; functions are Python modules beside the script"
                self._diagnostics.warning(
                    "jars are not used: this has no effect", self._script.locate(*span), hint=hint
                )
            case statements.Use():
                self._use(statement)

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
        if plan is None or self._diagnostics.has_errors:
            return None
        tables = {name: columns_of(relation) for name, relation in self._catalog.relations.items()}
        return ReadScript(plan, tuple(self._outputs), self._catalogs.found, tables)

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
            self._diagnostics.errors_of(error)
        except UnsupportedPlanError as error:
            self._diagnostics.error(error.message, None, hint=error.hint)
        return None

    # -- CREATE and DROP -----------------------------------------------------------------------------------------------------

    def _create_table(self, statement: statements.CreateTable) -> None:
        self._shared.give_way(self._known.path(statement.name), statement.name[-1].span)
        path = self._known.new_path(statement.name, if_not_exists=statement.if_not_exists)
        if path is None:
            return
        if not path.is_local:
            with marked([n.span for n in statement.name]):
                statement = self._catalogs.new_table(path, statement)
        if statement.like is not None:
            self._known.reject_poisoned(*(n.text for n in statement.like.table))
        name, span = str(path), statement.name[-1].span
        if statement.query is None:
            self._tables.declare(path, span, statement)
            return
        if statement.columns or statement.partitions or statement.like:
            hint = f"declare {name} first, then INSERT INTO {name} SELECT …"
            raise error_at("CREATE TABLE … AS takes its columns from the query", span, hint)
        bound = self._bind(statement.query, self._unique(name))
        made = self._tables.declare_like_query(path, span, statement, bound.node.schema)
        insert = statements.Insert(statement.name, statement.query)
        self._sinks.append(self._insert(insert, made, bound, name))
        self._keep_settings()

    def _create_view(self, statement: statements.CreateView) -> None:
        if statement.replace:
            replaced = self._known.path(statement.name)
            self._catalog.forget(replaced)
            self._tables.forget(replaced)
        self._shared.give_way(self._known.path(statement.name), statement.name[-1].span)
        path = self._known.new_path(statement.name, if_not_exists=statement.if_not_exists)
        if path is None:
            return
        with marked([n.span for n in statement.name]):
            self._catalogs.check_new_view(path, statement.name[-1].span, temporary=statement.temporary)
        name = str(path)
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
        self._catalog.declare(path, CatalogView(name, node, self._script.locate(*span), statement.query.text))

    def _create_function(self, statement: statements.CreateFunction) -> None:
        name = function_name(statement.name).upper()
        self._shared.give_way_to_function(name, statement.name[-1].span)
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
        self._known.forgive(name)

    def _drop(self, statement: statements.Drop) -> None:
        match statement.kind:
            case statements.ObjectKind.CATALOG:
                self._known.reject_poisoned(statement.name[0].text)
                self._catalogs.drop(statement.name[0], if_exists=statement.if_exists)
            case statements.ObjectKind.FUNCTION:
                name = function_name(statement.name)
                known = [f.name for f in self._catalog.functions.values()]
                found = self._catalog.functions.pop(name.upper(), None)
                self._check_dropped(statement, name, known, found=found is not None)
            case statements.ObjectKind.TABLE | statements.ObjectKind.VIEW:
                self._drop_relation(statement)

    def _drop_relation(self, statement: statements.Drop) -> None:
        path = self._known.path(statement.name)
        wanted = CatalogTable if statement.kind is statements.ObjectKind.TABLE else CatalogView
        found = isinstance(self._catalog.declared(path), wanted)
        if found:
            self._catalog.forget(path)
            self._tables.forget(path)
        elif not path.is_local:
            hint = "drop it there; DROP in a script is for what the script declares"
            what = statement.kind.value
            raise error_at(f"the script declares no {what} {path}", statement.name[-1].span, hint)
        known = [n for n, r in self._catalog.relations.items() if isinstance(r, wanted)]
        self._check_dropped(statement, path.name, known, found=found)

    def _check_dropped(self, statement: statements.Drop, name: str, known: list[str], *, found: bool) -> None:
        if not found and not statement.if_exists and not self._known.is_poisoned(name):
            hint = did_you_mean(name, known) or "DROP … IF EXISTS"
            raise error_at(f"{statement.kind.value} '{name}' does not exist", statement.name[-1].span, hint)
        self._known.forgive(name)

    def _use(self, statement: statements.Use) -> None:
        self._is_astray = True
        self._known.reject_poisoned(*(n.text for n in statement.path))
        self._catalogs.use(statement.path, catalog=statement.catalog)
        self._is_astray = False

    # -- queries -------------------------------------------------------------------------------------------------------------

    def _sink(self, statement: statements.Insert | statements.Select) -> Sink:
        if isinstance(statement, statements.Select):
            name = self._unique("select")
            bound = self._bind(statement.query, name)
            return print_sink(bound.node, bound.names, statement.query.span, self._script, name)
        self._known.reject_poisoned(*(n.text for n in statement.table))
        span = statement.table[-1].span
        try:
            path = self._known.path(statement.table)
            with marked([n.span for n in statement.table]):
                relation = self._catalog.relation(path)
        except ExpressionError:
            self._check_anyway(statement.query)
            raise
        made = self._tables.declared(path)
        if made is None or isinstance(relation, CatalogView):
            raise error_at(f"'{path}' is a view, which cannot be written", span, "INSERT INTO a table")
        if statement.hints:
            made = self._tables.with_hints(made, statement.hints, span)
        if statement.overwrite:
            made = self._tables.overwriting(made, span)
        writable = self._tables.check(made, TableRole.SINK)
        name = self._unique(str(path))
        sink = self._insert(statement, made, self._bind(statement.query, name), name)
        if not writable:
            raise NoticedError
        return sink

    def _insert(self, statement: statements.Insert, made: DeclaredTable, bound: BoundQuery, name: str) -> Sink:
        return insert_sink(statement, made, bound, self._script, name, self._expressions.constant)

    def _bind(self, query: Slice, name: str) -> BoundQuery:
        """The plan of a query.

        Raises:
            ExpressionError: it is wrong.
            NoticedError: it names something whose own statement is wrong.
        """
        self._known.reject_poisoned(*names_mentioned(query.text))
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
        except NoticedError:
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

    def _answer(self, question: Question, read: statements.ReadStatement) -> None:
        if not isinstance(question, statements.Show | statements.DescribeCatalog):
            self._known.reject_poisoned(*(n.text for n in question.name))
        answer = self._answers.answer(question, read.span)
        if answer is not None:
            self._outputs.append(answer)

    def _check_secrets(self, read: statements.ReadStatement) -> None:
        """A secret may only stand in the value of a table's option: elsewhere it would be seen in plans and messages."""
        has_options = statements.CreateTable | statements.CreateCatalog
        allowed = [o.value_span for o in read.statement.options] if isinstance(read.statement, has_options) else []
        for piece in self._script.pieces_in(*read.span):
            if piece.secret and not any(a <= piece.start and piece.end <= b for a, b in allowed):
                if isinstance(read.statement, statements.SetOption):
                    continue  # which says it itself
                raise error_at("a secret can only be the value of an option in WITH (…)", (piece.start, piece.end))

    def _check_overridden_tables(self) -> None:
        for name in self._overrides.tables:
            if name not in self._known.given:
                close = near_matches(name, self._known.given)
                hint = f"did you mean 'tables.{close[0]}'?" if close else None
                self._diagnostics.error(f"--set tables.{name}…: there is no table '{name}'", None, hint=hint)


_ANYWHERE = (
    statements.Use,
    statements.CreateCatalog,
    statements.CreateFunction,
    statements.SetOption,
    statements.ResetOption,
    statements.AddJar,
)
"""Statements that mean the same whatever the current catalog is."""
