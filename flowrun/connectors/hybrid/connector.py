"""The record of `hybrid` that the registry finds, and how its source is made of those of other connectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from flowrun.api.changelog import ChangelogMode, mode_of_source
from flowrun.api.connector import Comparison, Connector, EventTime, PushedFilter, TableDefinition
from flowrun.api.source import Boundedness, Delivery, Source
from flowrun.connectors.formats.registry import ERROR_OPTIONS
from flowrun.connectors.hybrid.options import (
    IDENTIFIERS,
    OF_ANY_TABLE,
    SWITCH_SLACK,
    SWITCH_TIME,
    can_be_part,
    check_beginning,
    identifiers_of,
    options_for,
    parts_of,
    switch_times,
)
from flowrun.connectors.hybrid.parts import Part
from flowrun.connectors.hybrid.source import HybridSource
from flowrun.connectors.registry import connector_named
from flowrun.connectors.table_options import VALUE_FORMAT, check_format
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.errors import OptionError


def create_source(table: TableDefinition) -> HybridSource:
    """The source of a table definition.

    Raises:
        OptionError: an option is wrong, or the sources do not go together.
    """
    names = identifiers_of(table.options)
    times = switch_times(table.options, len(names) - 1)
    if times and table.event_time is None:
        raise OptionError(
            SWITCH_TIME,
            f"'{SWITCH_TIME}' divides rows by their event time, which table '{table.name}' does not have",
            hint="declare it: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, in YAML watermark: {column: ts, delay: 5s}; or leave "
            f"'{SWITCH_TIME}' out, and say of each source where it begins and ends",
        )
    event_time = table.event_time if times else None
    bounds = [None, *times, None]
    parts = []
    for position, name in enumerate(names):
        begin, end = (bounds[position], bounds[position + 1]) if times else (None, None)
        parts.append(Part(name, _source_of(table, name, event_time, (begin, end)), begin, end))
    _check_ends(parts)
    return HybridSource(table.name, table.schema, tuple(parts), event_time, _changes(parts, switched=bool(times)))


def _source_of(
    table: TableDefinition, name: str, event_time: EventTime | None, times: tuple[int | None, int | None]
) -> Source:
    try:
        return _made(table, name, event_time, times)
    except OptionError as error:
        key = error.option if error.option.startswith(f"{name}.") else f"{name}.{error.option}"
        raise OptionError(key, f"source '{name}': {error.message}", hint=error.hint) from error


def _made(
    table: TableDefinition, name: str, event_time: EventTime | None, times: tuple[int | None, int | None]
) -> Source:
    given = table.options.under(name)
    connector = connector_named(str(given.pop("connector")))
    own_format = given.pop("format", None) or given.get(VALUE_FORMAT)
    format_name = None if own_format is None else str(own_format)
    make = connector.create_source
    if make is None or not can_be_part(connector):
        what = "is no source" if make is None else "cannot be in another one"
        raise OptionError("connector", f"connector '{connector.name}' {what}")
    check_format(connector, format_name)
    shared = {o.name: table.options.get(o.name) for o in ERROR_OPTIONS if o in connector.source_options}
    options = Options({**given, **shared})
    if times[0] is not None:
        check_beginning(name, connector, options, max(times[0] - table.options.integer(SWITCH_SLACK), 0))
    return make(
        replace(
            table,
            schema=_read_columns(table, event_time),
            options=options,
            format=format_name,
            partition_keys=table.partition_keys if connector.partitions else (),
            filters=(*table.filters, *_of_times(event_time, times)),
            event_time=None,
        )
    )


def _read_columns(table: TableDefinition, event_time: EventTime | None) -> Schema:
    """The columns that sources are asked for: also those that event time is computed from."""
    if event_time is None:
        return table.schema
    wanted = {*table.schema.names, *event_time.columns}
    declared = table.declared or table.schema
    return declared.select(n for n in declared.names if n in wanted)


def _of_times(event_time: EventTime | None, times: tuple[int | None, int | None]) -> tuple[PushedFilter, ...]:
    """The times of a source's rows as hints for reading less. Rows without event time may be left out by them: they fail a stream."""
    column = None if event_time is None else event_time.column
    if column is None:
        return ()
    pairs = zip((Comparison.GE, Comparison.LT), times, strict=True)
    return tuple(PushedFilter(column, comparison, time) for comparison, time in pairs if time is not None)


def _check_ends(parts: Sequence[Part]) -> None:
    for part, behind in pairwise(parts):
        if part.source.boundedness is Boundedness.UNBOUNDED:
            raise OptionError(
                f"{part.identifier}.connector",
                f"source '{part.identifier}' has no end, so that '{behind.identifier}' behind it would never be read",
                hint="bound it (a folder: without source.monitor-interval, a topic: scan.bounded.mode), or name it last in "
                f"'{IDENTIFIERS}'",
            )


def _changes(parts: Sequence[Part], *, switched: bool) -> ChangelogMode:
    """The changes that the rows of all sources may be."""
    modes = {mode_of_source(part.source) for part in parts}
    changing = next((p for p in parts if mode_of_source(p.source) is not ChangelogMode.APPEND), None)
    if switched and changing is not None:
        raise OptionError(
            SWITCH_TIME,
            f"'{SWITCH_TIME}' divides rows by their event time, but '{changing.identifier}' gives changes of rows, whose event time is not "
            "that of the change",
            hint=f"leave '{SWITCH_TIME}' out, and say of each source where it begins and ends",
        )
    if ChangelogMode.UPSERT in modes and modes & {ChangelogMode.UPDATE, ChangelogMode.RETRACT}:
        raise OptionError(
            IDENTIFIERS, "one source gives upserts by key and another one changes with the rows before them: they cannot follow each other"
        )  # fmt: skip
    return max(modes)


CONNECTOR = Connector(
    name="hybrid",
    summary="Sources of other connectors, read one after the other: history from files or a lake table, then the stream from Kafka.",
    source_options=OF_ANY_TABLE,
    source_options_for=options_for,
    parts_of=parts_of,
    create_source=create_source,
    source_delivery=Delivery.EXACTLY_ONCE,
    partitions=True,
    uses_event_time=True,
    notes="Each source has a name, and its options begin with that. See docs/connectors/hybrid.md.",
)
