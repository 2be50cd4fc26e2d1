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


def source_of(
    connector: str, schema: Schema, options: Mapping[str, object], name: str, *, format: str | None = None
) -> Source:
    """The source that reads a table. Raises PipelineError if connector, format or options are wrong."""
    table = TableReference(name, connector, options, format)
    return _checked(table, tables.TableRole.SOURCE, f"source '{name}'", lambda: tables.create_source(table, schema))


def sink_of(
    connector: str,
    schema: Schema,
    options: Mapping[str, object],
    name: str,
    *,
    format: str | None = None,
    partition_keys: tuple[str, ...] = (),
    primary_key: tuple[str, ...] = (),
) -> Sink:
    """The sink that writes a table. Raises PipelineError if connector, format or options are wrong."""
    table = TableReference(name, connector, options, format, tuple(partition_keys), tuple(primary_key))
    return _checked(
        table, tables.TableRole.SINK, f"sink '{name}'", lambda: tables.create_sink(table, schema, unbounded=True)
    )


def _checked(table: TableReference, role: tables.TableRole, place: str, create: Callable[[], C]) -> C:
    try:
        problems = tables.table_problems(table, role)
        if not problems:
            return create()
    except OptionError as error:
        problems = [error]
    raise PipelineError.of(f"{place}: {problems[0].message}", problems[0].hint) from problems[0]
