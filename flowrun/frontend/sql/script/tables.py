"""The tables of a script: made by CREATE TABLE, read through one scan each, written by INSERT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from flowrun.api.connector import Distribution
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.schema import Schema
from flowrun.errors import ExpressionError, Location, OptionError, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.catalog import Catalog, CatalogTable, TablePath, UnresolvedNameError
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.script.ddl_parser import hinted_options
from flowrun.frontend.sql.script.statement_reader import Slice
from flowrun.frontend.sql.script.statements import ColumnKind, ColumnSyntax, CreateTable, OptionSyntax
from flowrun.frontend.sql.script.stored_tables import type_text
from flowrun.frontend.sql.script.table_columns import BindExpression, ColumnReader, TableColumns
from flowrun.frontend.sql.script.table_likeness import merged_with
from flowrun.frontend.sql.script.table_options import EMIT_STRATEGY, TableOptions, read_options
from flowrun.frontend.sql.script.text import ScriptText
from flowrun.frontend.sql.spans import SeveralErrors, Span, error_at
from flowrun.plan.nodes import NodeHints, Scan, TableReference, WatermarkKind
from flowrun.plan.tables import (
    TableRole,
    create_sink,
    create_source,
    declared_options,
    known_metadata,
    learn_secrets_of_options,
    reading_role,
    secret_options,
    table_problems,
    watermark_problem,
)

_MODE = "sink.mode"
_BOUNDED = "WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND"


@dataclass(slots=True, eq=False)
class DeclaredTable:
    """A table with all that its CREATE statement says; `syntax` is complete: what LIKE takes over is in it."""

    table: CatalogTable
    syntax: CreateTable
    columns: TableColumns
    options: TableOptions
    name_span: Span
    place: str
    checked: dict[TableRole, bool]


class ScriptTables:
    """Declares tables, and checks them in the roles in which they are used.

    Args:
        script: the text.
        catalog: receives the tables.
        diagnostics: receives problems of options, each once.
        bind: binds expressions of columns.
        overrides: option values from the command line, by table.
    """

    def __init__(
        self,
        script: ScriptText,
        catalog: Catalog,
        diagnostics: Diagnostics,
        bind: BindExpression,
        overrides: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._script = script
        self._catalog = catalog
        self._diagnostics = diagnostics
        self._bind = bind
        self._overrides = overrides
        self._declared: dict[TablePath, DeclaredTable] = {}
        self._times: Counter[str] = Counter()  # a name may be dropped and given again
        self.idle_timeout_ms: int | None = None
        """Of tables that say nothing else: `table.exec.source.idle-timeout`."""
        self.watermark_interval_ms: int | None = None
        """`pipeline.auto-watermark-interval`; None: not set."""

    def declared(self, path: TablePath) -> DeclaredTable | None:
        """The table of a name, as it was declared or found."""
        return self._declared.get(path)

    @property
    def local(self) -> dict[str, DeclaredTable]:
        """The tables that are in no other catalog, by name."""
        return {path.name: made for path, made in self._declared.items() if path.is_local}

    def forget(self, path: TablePath) -> None:
        """The table is dropped."""
        self._declared.pop(path, None)

    def declare(self, path: TablePath, name_span: Span, syntax: CreateTable) -> DeclaredTable:
        """Make a table known.

        Raises:
            SeveralErrors: columns, keys, watermark or LIKE are wrong.
            NoticedError: LIKE names a table of a catalog that failed before.
        """
        made = self.declare_found(path, name_span, syntax)
        self._catalog.declare(path, made.table)
        return made

    def declare_found(self, path: TablePath, name_span: Span, syntax: CreateTable) -> DeclaredTable:
        """As `declare`, of a table that its catalog knows: the script's own come before it."""
        name = str(path)
        problems: list[ExpressionError] = []
        if syntax.like is not None:
            syntax = merged_with(syntax, self._base(syntax.like.table).syntax, problems)
        syntax = replace(syntax, options=self._overridden(name, name_span, syntax.options))
        options = read_options(syntax.options, self._script, problems)
        if not syntax.columns:
            problems += self._default_columns(name, name_span, options)
        columns = ColumnReader(self._bind, *known_metadata(options.connector or ""), problems).read(syntax)
        if columns is None or problems:
            raise SeveralErrors(problems)
        if not syntax.columns and options.connector is not None:
            columns = _default(columns, options.connector)
        location = self._script.locate(*name_span)
        table = CatalogTable(
            name,
            columns.schema,
            columns.physical,
            self._reference(name, options, columns, syntax),
            columns.primary_key,
            location,
            path=path,
        )
        self._times[name] += 1
        place = f"tables.{name}" if self._times[name] == 1 else f"tables.{name}-{self._times[name]}"
        made = DeclaredTable(table, syntax, columns, options, name_span, place, {})
        self._declared[path] = made
        for key in (*options.without_effect, *_not_sent(options, table.reference)):
            self._diagnostics.warning(f"'{key}' has no effect here", self._script.locate(*options.keys[key]))
        return made

    def _base(self, like: tuple[Name, ...]) -> DeclaredTable:
        """The table that LIKE names."""
        try:
            path = self._catalog.path([n.text for n in like])
            self._catalog.relation(path)
        except UnresolvedNameError as problem:
            raise SeveralErrors([problem.at([n.span for n in like])]) from None
        base = self._declared.get(path)
        if base is None:
            raise SeveralErrors([error_at(f"'{path}' is a view: LIKE names a table", like[-1].span)])
        return base

    def declare_like_query(
        self, path: TablePath, name_span: Span, syntax: CreateTable, schema: Schema
    ) -> DeclaredTable:
        """Make a table known whose columns are those of a query (CREATE TABLE … AS).

        Raises:
            SeveralErrors: as `declare`.
        """
        columns = tuple(
            ColumnSyntax(
                Name(f.name, name_span, True),
                ColumnKind.PHYSICAL,
                name_span,
                Slice(type_text(f.type), name_span[0]),
                f.nullable,
            )
            for f in schema
        )
        return self.declare(path, name_span, replace(syntax, columns=columns, query=None))

    def with_hints(self, made: DeclaredTable, hints: tuple[str, ...], span: Span) -> DeclaredTable:
        """The table with the options that hints after its name give.

        Raises:
            ExpressionError: a hint is wrong.
        """
        given = self._hinted(hints, span)
        return self._with_options(made, given) if given else made

    def overwriting(self, made: DeclaredTable, span: Span) -> DeclaredTable:
        """The table as INSERT OVERWRITE writes it: files that are there are replaced once the run shows its own.

        Raises:
            ExpressionError: its connector cannot do that, or it is partitioned: partitions without new rows would go, too.
        """
        name, connector = made.table.name, made.options.connector
        if connector in connector_names():
            known = {o.name for o in connector_named(connector).sink_options}
            if _MODE not in known:
                hint = "INSERT INTO adds to what is there"
                raise error_at(f"INSERT OVERWRITE: connector '{connector}' of '{name}' cannot replace rows", span, hint)
        if made.columns.partitions:
            raise error_at(
                f"INSERT OVERWRITE of '{name}' is not possible, which is partitioned: partitions without new rows would have to stay",
                span,
                f"to replace all partitions set the table's option '{_MODE}' to 'overwrite' and use INSERT INTO",
            )
        return self._with_options(made, (OptionSyntax(_MODE, span, "overwrite", span),))

    # -- reading -------------------------------------------------------------------------------------------------------------

    def scan(self, table: CatalogTable, span: Span) -> Scan:
        """See `ScanTable`."""
        assert table.path is not None  # it is one of these
        made = self._declared[table.path]
        if table is not made.table:  # a query gives it other options
            declared = made.table.reference.options
            changed = {k: str(v) for k, v in table.reference.options.items() if declared.get(k) != v}
            given = tuple(OptionSyntax(k, span, v, span) for k, v in changed.items())
            self._times[f"{made.place}.options"] += 1
            return self._scan(
                self._with_options(made, given), f"{made.place}.options-{self._times[f'{made.place}.options']}"
            )
        if table.scan is None:
            table.scan = self._scan(made, made.place)
        return table.scan

    def _hinted(self, hints: tuple[str, ...], span: Span) -> tuple[OptionSyntax, ...]:
        found: list[OptionSyntax] = []
        for hint in hints:
            start = self._script.text.find(hint, span[0]) if hint else -1
            found += hinted_options(hint, max(start, 0)) or ()
        if hints:
            shift = {o.key: self._script.text.find(f"'{o.key}'", span[0]) for o in found}
            found = [_moved(o, shift[o.key]) for o in found]
        return tuple(found)

    def _with_options(self, made: DeclaredTable, given: tuple[OptionSyntax, ...]) -> DeclaredTable:
        problems: list[ExpressionError] = []
        kept = tuple(o for o in made.syntax.options if o.key not in {g.key for g in given})
        options = read_options((*kept, *given), self._script, problems)
        if problems:
            raise SeveralErrors(problems)
        table = replace_reference(made.table, self._reference(made.table.name, options, made.columns, made.syntax))
        return DeclaredTable(table, made.syntax, made.columns, options, made.name_span, made.place, {})

    def _scan(self, made: DeclaredTable, place: str) -> Scan:
        columns, options = made.columns, made.options
        self.check(made, reading_role(made.table.reference.connector))
        watermark = columns.watermark
        if watermark is not None:
            watermark = replace(
                watermark,
                idle_timeout_ms=options.idle_timeout_ms or self.idle_timeout_ms,
                emit=None if watermark.kind is WatermarkKind.SOURCE else options.emit,
                emit_interval_ms=self.watermark_interval_ms or watermark.emit_interval_ms,
            )
        hints = NodeHints(
            name=made.table.name,
            place=place,
            parallelism=options.scan_parallelism,
            location=made.table.location,
            on_error=options.on_error,
            letters_to=options.letters_to,
            letter_limit=options.letter_limit,
        )
        return Scan(
            schema=columns.schema,
            hints=hints,
            table=made.table.reference,
            physical=columns.scanned,
            projections=columns.projections,
            watermark=watermark,
            declared=columns.scanned,
        )

    # -- options -------------------------------------------------------------------------------------------------------------

    def check(self, made: DeclaredTable, role: TableRole) -> bool:
        """Whether connector, format and options fit the role; what does not is reported where it stands, once."""
        if role not in made.checked:
            problems = self._problems(made, role)
            for found in problems:
                span = made.options.place_of(found, made.options.places.get("connector", made.name_span))
                self._diagnostics.error(f"table '{made.table.name}': {found.message}", self._at(span), hint=found.hint)
            made.checked[role] = not problems and (role is TableRole.SINK or self._can_be_read(made))
        return made.checked[role]

    def _can_be_read(self, made: DeclaredTable) -> bool:
        """Whether the connector fills all metadata columns, and sends the watermarks if it is to; else that is reported."""
        unreadable = {c.field.name: c.key for c in made.columns.metadata if not c.readable}
        for column in made.syntax.columns:
            if column.name.text in unreadable:
                self._diagnostics.error(
                    f"table '{made.table.name}': the metadata '{unreadable[column.name.text]}' can be written, but not read",
                    self._at((column.key or column.name).span),
                    hint=f"read a table that is declared without column '{column.name.text}': LIKE … (EXCLUDING METADATA)",
                )
        return self._has_watermarks(made) and not unreadable

    def _has_watermarks(self, made: DeclaredTable) -> bool:
        """Whether who is to send the watermarks does so; else that is reported."""
        mark = made.syntax.watermark
        if mark is None or not made.table.reference.source_watermarks:
            return True
        instead = _BOUNDED.format(mark.column[0].text)
        found = watermark_problem(made.table.reference.connector, "SOURCE_WATERMARK()", instead)
        if found is not None:
            place = self._at(mark.expression.span)
            self._diagnostics.error(f"table '{made.table.name}': {found.message}", place, hint=found.hint)
        return found is None

    def _at(self, span: Span) -> Location:
        return self._script.locate(*span)

    def _problems(self, made: DeclaredTable, role: TableRole) -> list[OptionError]:
        reference, columns = made.table.reference, made.columns
        if made.options.connector is None:
            given = near_matches("connector", made.options.values)
            hint = (
                f"did you mean 'connector' instead of '{given[0]}'?"
                if given
                else "WITH ('connector' = 'filesystem', …)"
            )
            return [OptionError("connector", "the option 'connector' is missing", hint=hint)]
        problems = table_problems(reference, role)
        if problems:
            return problems
        try:
            if role is TableRole.SOURCE and all(c.readable for c in columns.metadata):
                create_source(reference, columns.scanned, columns.scanned)
            elif role is TableRole.SINK:
                create_sink(reference, columns.written, unbounded=False)
        except OptionError as error:
            return [error]
        return []

    def _reference(
        self, name: str, options: TableOptions, columns: TableColumns, syntax: CreateTable
    ) -> TableReference:
        secrets = set(options.secrets)
        event_time = None
        learn_secrets_of_options((), options.values)  # of connectors, and by names, that nobody knows, too
        if options.connector in connector_names():
            connector = connector_named(options.connector)
            known = options.format if options.format in connector.formats else None
            for role in TableRole:
                declared = declared_options(connector, known, role, options.values)
                learn_secrets_of_options(declared, options.values)
                secrets |= secret_options(declared, options.values)
            if connector.uses_event_time and columns.watermark is not None:
                event_time = columns.watermark.time
        return TableReference(
            name=name,
            connector=options.connector or "",
            options=dict(options.values),
            format=options.format,
            partition_keys=columns.partitions,
            primary_key=columns.primary_key,
            secret_options=frozenset(secrets),
            metadata=columns.keys,
            written_metadata={c.field.name: c.key for c in columns.metadata if c.written is not None},
            distribution=_distribution(syntax),
            source_watermarks=columns.watermark is not None and columns.watermark.kind is WatermarkKind.SOURCE,
            event_time=event_time,
        )

    def _overridden(self, name: str, span: Span, options: tuple[OptionSyntax, ...]) -> tuple[OptionSyntax, ...]:
        """The options with the values that the command line gives instead; a new one stands where the table's name does."""
        values = self._overrides.get(name, {})
        kept = [replace(o, value=values[o.key]) if o.key in values else o for o in options]
        known = {o.key for o in options}
        return (*kept, *(OptionSyntax(k, span, v, span) for k, v in values.items() if k not in known))

    def _default_columns(self, name: str, span: Span, options: TableOptions) -> list[ExpressionError]:
        connector = options.connector
        if connector in connector_names() and connector_named(connector).default_schema is not None:
            return []
        return [error_at(f"table '{name}' has no columns", span, "CREATE TABLE name (column TYPE, …) WITH (…)")]


def _not_sent(options: TableOptions, table: TableReference) -> tuple[str, ...]:
    """Options that say when watermarks are sent, where the source decides that."""
    return tuple(k for k in options.keys if k == EMIT_STRATEGY and table.source_watermarks)


def _distribution(syntax: CreateTable) -> Distribution | None:
    given = syntax.distribution
    return None if given is None else Distribution(tuple(n.text for n in given.columns), given.buckets)


def replace_reference(table: CatalogTable, reference: TableReference) -> CatalogTable:
    """The same table with other options."""
    return CatalogTable(
        table.name, table.schema, table.physical, reference, table.primary_key, table.location, path=table.path
    )


def _moved(option: OptionSyntax, start: int) -> OptionSyntax:
    if start < 0:
        return option
    shift = start - option.key_span[0]
    key = (start, option.key_span[1] + shift)
    return replace(option, key_span=key, value_span=(option.value_span[0] + shift, option.value_span[1] + shift))


def _default(columns: TableColumns, connector: str) -> TableColumns:
    """The columns that a connector has by itself."""
    from flowrun.plan.expressions import ColumnRef

    schema = connector_named(connector).default_schema
    assert schema is not None
    projections = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))
    return replace(columns, schema=schema, physical=schema, scanned=schema, projections=projections, persisted=schema)
