"""Tables of a plan as connectors see them: which options they take, and the sources and sinks made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from flowrun.api.connector import Connector, PushedFilter, TableDefinition
from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.connectors.formats.registry import prefixed_options
from flowrun.connectors.registry import connector_named
from flowrun.core.options import Option, Options, parse_options
from flowrun.core.schema import Schema
from flowrun.errors import InternalError, OptionError, did_you_mean
from flowrun.plan.nodes import TableReference


class TableRole(Enum):
    """Whether a table is read or written."""

    SOURCE = "source"
    SINK = "sink"


def usable_connector(name: str, role: TableRole) -> Connector:
    """The connector `name`, if it can be used in this role.

    Raises:
        OptionError: there is none, or it only works the other way round.
    """
    connector = connector_named(name)
    create = connector.create_source if role is TableRole.SOURCE else connector.create_sink
    if create is None:
        other = "sink" if role is TableRole.SOURCE else "source"
        raise OptionError(
            "connector", f"connector '{name}' is no {role.value}", hint=f"it can only be used as a {other}"
        )
    return connector


def check_format(connector: Connector, name: str | None) -> None:
    """Raise OptionError unless `name` is a format that the connector can use, or None where it needs none."""
    if name is None:
        if connector.formats:
            raise OptionError(
                "format", f"connector '{connector.name}' needs a format", hint="one of " + ", ".join(connector.formats)
            )
    elif not connector.formats:
        raise OptionError(
            "format", f"connector '{connector.name}' takes no format", hint="its rows have a layout of their own"
        )
    elif name not in connector.formats:
        raise OptionError(
            "format",
            f"connector '{connector.name}' has no format '{name}'",
            hint=did_you_mean(name, connector.formats),
        )


def declared_options(connector: Connector, format_name: str | None, role: TableRole) -> tuple[Option, ...]:
    """All options that a table may be given: the connector's and, under the format's name, the format's."""
    own = connector.source_options if role is TableRole.SOURCE else connector.sink_options
    return (*own, *(prefixed_options(format_name) if format_name is not None else ()))


def parse_table_options(
    connector: Connector, format_name: str | None, role: TableRole, given: Mapping[str, object]
) -> tuple[Options, list[OptionError]]:
    """Typed options of a table and every problem with what was given."""
    owner = f"connector '{connector.name}'" + (f" with format '{format_name}'" if format_name else "")
    return parse_options(declared_options(connector, format_name, role), given, owner)


def secret_options(options: Iterable[Option], given: Iterable[str]) -> frozenset[str]:
    """Those of the given keys whose option is declared secret."""
    declared = [o for o in options if o.secret]
    return frozenset(k for k in given if any(o.matches(k) for o in declared))


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
    return connector.create_source(replace(definition, filters=filters, declared=declared))


def create_sink(table: TableReference, schema: Schema, unbounded: bool) -> Sink:
    """The sink that writes rows of `schema` to the table.

    Args:
        table: as declared.
        schema: the columns that are written.
        unbounded: whether the job has an unbounded source.

    Raises:
        OptionError: the options do not go together or do not fit the columns.
    """
    connector = usable_connector(table.connector, TableRole.SINK)
    if connector.create_sink is None:
        raise InternalError(f"connector '{connector.name}' is no sink")
    definition = _definition(connector, table, schema, TableRole.SINK)
    return connector.create_sink(replace(definition, unbounded=unbounded))


def _definition(connector: Connector, table: TableReference, schema: Schema, role: TableRole) -> TableDefinition:
    """What a connector is told of a source or sink alike. Raises OptionError for the first wrong option."""
    check_format(connector, table.format)
    options, problems = parse_table_options(connector, table.format, role, table.options)
    if problems:
        raise problems[0]
    return TableDefinition(
        name=table.name,
        schema=schema,
        options=options,
        format=table.format,
        partition_keys=table.partition_keys,
        primary_key=table.primary_key,
    )
