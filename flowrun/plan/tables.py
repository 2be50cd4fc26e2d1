"""Tables of a plan as connectors see them: which options they take, and the sources and sinks made from them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from enum import Enum

from flowrun.api.connector import Connector, EventTime, PushedFilter, TableDefinition
from flowrun.api.lookup import LookupSource
from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.connectors.table_options import VALUE_FORMAT, check_format, options_of_formats, source_options
from flowrun.core.options import Option, Options, parse_options
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import InternalError, OptionError
from flowrun.masking import learn_secret, learn_secrets_of_uri, names_secret
from flowrun.operators.joins.lookup_options import LOOKUP_JOIN_OPTIONS
from flowrun.plan.compiled import Value
from flowrun.plan.expressions import ColumnRef, columns_used, substitute
from flowrun.plan.nodes import TableReference

__all__ = ["VALUE_FORMAT", "check_format"]


class TableRole(Enum):
    """Whether a table is read or written, or asked for rows by key."""

    SOURCE = "source"
    SINK = "sink"
    LOOKUP = "lookup"


@record
class ProgramTable:
    """What a program in Python reads or writes at one end.

    Attributes:
        name: of the source or sink.
        table: None: it is no connector's.
        line: of the program; None: not known.
    """

    name: str
    table: TableReference | None
    line: int | None


def usable_connector(name: str, role: TableRole) -> Connector:
    """The connector `name`, if it can be used in this role.

    Raises:
        OptionError: there is none, or it only works the other way round.
    """
    connector = connector_named(name)
    able = [r for r in TableRole if _factory(connector, r) is not None]
    if role not in able:
        others = " or ".join(r.value for r in able)
        what = "cannot be looked up in" if role is TableRole.LOOKUP else f"is no {role.value}"
        hint = f"it can only be used as a {others}"
        if role is TableRole.SOURCE and TableRole.LOOKUP in able:
            hint += "; a join asks it by key: JOIN … FOR SYSTEM_TIME AS OF a processing time"
        raise OptionError("connector", f"connector '{name}' {what}", hint=hint)
    return connector


def reading_role(connector: str) -> TableRole:
    """The role of a table that a query names: SOURCE, or LOOKUP if its connector can only be asked by key; then a join has to."""
    if connector not in connector_names():
        return TableRole.SOURCE
    found = connector_named(connector)
    return TableRole.LOOKUP if found.create_source is None and found.create_lookup is not None else TableRole.SOURCE


def _factory(connector: Connector, role: TableRole) -> object:
    return {
        TableRole.SOURCE: connector.create_source,
        TableRole.SINK: connector.create_sink,
        TableRole.LOOKUP: connector.create_lookup,
    }[role]


def watermark_problem(connector: str, what: str, instead: str) -> OptionError | None:
    """What is wrong with leaving watermarks to the sources of a connector; None: nothing, or there is no such connector.

    Args:
        connector: its name.
        what: leaves them to it, e.g. `SOURCE_WATERMARK()`.
        instead: how to say how late rows may be.
    """
    if connector not in connector_names() or connector_named(connector).source_watermarks:
        return None
    able = ", ".join(n for n in connector_names() if connector_named(n).source_watermarks)
    return OptionError(
        "connector",
        f"{what} needs a source that sends watermarks of its own, which those of connector '{connector}' do not",
        hint=f"say how late rows may be: {instead}; connectors that send watermarks: {able}",
    )


def declared_options(
    connector: Connector, format_name: str | None, role: TableRole, given: Mapping[str, object] | None = None
) -> tuple[Option, ...]:
    """All options that a table may be given: the connector's and, under the format's name, the format's.

    Args:
        connector: of the table.
        format_name: of the table.
        role: what the table is used as.
        given: the table's options, which may decide about others (`Connector.source_options_for`); None: the options of any table.
    """
    if role is TableRole.SOURCE:
        return source_options(connector, format_name, given)
    if role is TableRole.SINK:
        return (*connector.sink_options, *options_of_formats(connector, format_name))
    own = connector.lookup_options
    if connector.create_lookup is not None:  # what every lookup join understands
        own = (*own, *(o for o in LOOKUP_JOIN_OPTIONS if all(o.name != other.name for other in own)))
    return (*own, *options_of_formats(connector, format_name))


def parse_table_options(
    connector: Connector, format_name: str | None, role: TableRole, given: Mapping[str, object]
) -> tuple[Options, list[OptionError]]:
    """Typed options of a table and every problem with what was given."""
    owner = f"connector '{connector.name}'" + (f" with format '{format_name}'" if format_name else "")
    return parse_options(declared_options(connector, format_name, role, given), given, owner)


def table_problems(table: TableReference, role: TableRole) -> list[OptionError]:
    """Everything that is wrong with a table's connector, format and options in a role, each by itself; nothing is created."""
    try:
        connector = usable_connector(table.connector, role)
        check_format(connector, table.format)
    except OptionError as error:
        return [error]
    return parse_table_options(connector, table.format, role, _of_role(connector, table, role))[1]


def learn_secrets_of_options(options: Iterable[Option], given: Mapping[str, object]) -> None:
    """Mask from now on the values of options that are declared secret, and passwords in URIs, wherever they would be shown."""
    secret = secret_options(options, given)
    for key, value in given.items():
        if key in secret:
            learn_secret(str(value))
        else:
            learn_secrets_of_uri(str(value))


def secret_options(options: Iterable[Option], given: Iterable[str]) -> frozenset[str]:
    """Those of the given keys whose option is declared secret; of those that are not declared by name the ones that say so."""
    declared = tuple(options)
    named = {o.name for o in declared}
    secret = [o for o in declared if o.secret]
    return frozenset(k for k in given if any(o.matches(k) for o in secret) or (k not in named and names_secret(k)))


def known_metadata(connector: str) -> tuple[dict[str, DataType], dict[str, DataType]]:
    """Keys of metadata that the connector can fill, and of those that it takes, with their types; none of an unknown connector."""
    if connector not in connector_names():
        return {}, {}
    found = connector_named(connector)
    return dict(found.metadata), dict(found.writable_metadata)


def scanned_name(key: str, taken: Container[str]) -> str:
    """The name of a metadata column in what is asked of the connector: its key, unless another column there is called like that.

    >>> scanned_name("key", ()), scanned_name("key", ("key",))
    ('key', 'metadata.key')
    """
    while key in taken:
        key = f"metadata.{key}"
    return key


def create_source(
    table: TableReference, schema: Schema, declared: Schema | None = None, filters: tuple[PushedFilter, ...] = ()
) -> Source:
    """The source that reads `schema` from the table.

    Args:
        table: as declared.
        schema: the columns to read, in the table's order.
        declared: all columns of the table, if those are more.
        filters: hints for reading less.

    Raises:
        OptionError: the options do not go together or do not fit the columns.
    """
    connector = usable_connector(table.connector, TableRole.SOURCE)
    if connector.create_source is None:
        raise InternalError(f"connector '{connector.name}' is no source")
    definition = _definition(connector, table, schema, TableRole.SOURCE)
    event_time = _event_time(table, declared or schema)
    return connector.create_source(replace(definition, filters=filters, declared=declared, event_time=event_time))


def create_sink(table: TableReference, schema: Schema, unbounded: bool, updating: bool = False) -> Sink:
    """The sink that writes rows of `schema` to the table.

    Args:
        table: as declared.
        schema: the columns that are written.
        unbounded: whether the job has an unbounded source.
        updating: whether the rows hold updates or deletes.

    Raises:
        OptionError: the options do not go together or do not fit the columns.
    """
    connector = usable_connector(table.connector, TableRole.SINK)
    if connector.create_sink is None:
        raise InternalError(f"connector '{connector.name}' is no sink")
    definition = _definition(connector, table, schema, TableRole.SINK)
    return connector.create_sink(replace(definition, unbounded=unbounded, updating=updating))


def create_lookup(
    table: TableReference, schema: Schema, keys: tuple[str, ...], declared: Schema | None = None
) -> LookupSource:
    """The lookup that finds rows of `schema` in the table.

    Args:
        table: as declared.
        schema: the columns wanted, in the table's order.
        keys: names of the columns to ask by; need not be in `schema`.
        declared: all columns of the table, if those are more.

    Raises:
        OptionError: the connector cannot be asked, the options do not go together or do not fit the columns.
    """
    connector = usable_connector(table.connector, TableRole.LOOKUP)
    if connector.create_lookup is None:
        raise InternalError(f"connector '{connector.name}' has no lookup")
    definition = _definition(connector, table, schema, TableRole.LOOKUP)
    return connector.create_lookup(replace(definition, declared=declared), keys)


def _definition(connector: Connector, table: TableReference, schema: Schema, role: TableRole) -> TableDefinition:
    """What a connector is told of a source or sink alike. Raises OptionError for the first wrong option."""
    check_format(connector, table.format)
    options, problems = parse_table_options(connector, table.format, role, _of_role(connector, table, role))
    if problems:
        raise problems[0]
    if table.distribution is not None and role is TableRole.SINK and not connector.buckets:
        raise OptionError(
            "connector", f"connector '{connector.name}' has no buckets", hint="leave DISTRIBUTED BY … BUCKETS out"
        )
    return TableDefinition(
        name=table.name,
        schema=schema,
        options=options,
        format=table.format,
        partition_keys=table.partition_keys,
        primary_key=table.primary_key,
        metadata=table.written_metadata if role is TableRole.SINK else table.metadata,
        distribution=table.distribution if role is TableRole.SINK else None,
        source_watermarks=table.source_watermarks and role is TableRole.SOURCE,
    )


def _event_time(table: TableReference, declared: Schema) -> EventTime | None:
    """How event time follows from columns of the table, for a connector that asks for it."""
    time = table.event_time
    if time is None:
        return None
    used = sorted(columns_used(time))
    moved = tuple(ColumnRef(f.type, used.index(i) if i in used else 0, f.name) for i, f in enumerate(declared))
    column = declared.names[time.index] if isinstance(time, ColumnRef) else None
    return EventTime(tuple(declared.names[i] for i in used), column, Value(substitute(time, moved)))


def _of_role(connector: Connector, table: TableReference, role: TableRole) -> dict[str, object]:
    """The table's options without those of its other roles: a table of a script may be read here and written there."""
    given = table.options
    own = declared_options(connector, table.format, role, given)
    others = [o for r in TableRole if r is not role for o in declared_options(connector, table.format, r, given)]
    return {k: v for k, v in given.items() if any(o.matches(k) for o in own) or not any(o.matches(k) for o in others)}
