"""Connectors by their names: the tables of SQL and YAML as sources and sinks of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.core.schema import Schema
from flowrun.errors import OptionError, PipelineError
from flowrun.plan import tables
from flowrun.plan.nodes import TableReference

C = TypeVar("C")


def source_of(table: TableReference, schema: Schema) -> Source:
    """The source that reads a table. Raises PipelineError if connector, format or options are wrong."""
    place = f"source '{table.name}'"
    return _checked(table, tables.TableRole.SOURCE, place, lambda: tables.create_source(table, schema))


def written_table(
    connector: str,
    options: Mapping[str, object],
    name: str,
    *,
    format: str | None = None,
    partition_keys: tuple[str, ...] = (),
    primary_key: tuple[str, ...] = (),
) -> TableReference:
    """The table that a sink writes."""
    return TableReference(name, connector, options, format, tuple(partition_keys), tuple(primary_key))


def sink_of(table: TableReference, schema: Schema) -> Sink:
    """The sink that writes a table. Raises PipelineError if connector, format or options are wrong."""
    place = f"sink '{table.name}'"
    return _checked(table, tables.TableRole.SINK, place, lambda: tables.create_sink(table, schema, unbounded=True))


def _checked(table: TableReference, role: tables.TableRole, place: str, create: Callable[[], C]) -> C:
    try:
        problems = tables.table_problems(table, role)
        if not problems:
            return create()
    except OptionError as error:
        problems = [error]
    raise PipelineError.of(f"{place}: {problems[0].message}", problems[0].hint) from problems[0]
