"""Sources and sinks over folders of a test, built the way a front end does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowrun.api.connector import PushedFilter, TableDefinition
from flowrun.api.lookup import LookupSource
from flowrun.connectors.filesystem import CONNECTOR
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.formats.registry import prefixed_options
from flowrun.core.options import Option, parse_options
from flowrun.core.schema import Schema
from flowrun.testing.connector_conformance import Rows, SourceDrive


def _definition(
    known: tuple[Option, ...], path: Path | str, format: str, schema: Schema, given: Mapping[str, Any], **more: Any
) -> TableDefinition:
    options, errors = parse_options(
        (*known, *prefixed_options(format)), {"path": str(path), **given}, "connector 'filesystem'"
    )
    assert not errors, errors
    return TableDefinition("t", schema, options, format=format, **more)


def source(
    path: Path | str,
    format: str,
    schema: Schema,
    options: Mapping[str, Any] | None = None,
    *,
    partition_keys: tuple[str, ...] = (),
    filters: tuple[PushedFilter, ...] = (),
    declared: Schema | None = None,
) -> FileSource:
    table = _definition(
        CONNECTOR.source_options,
        path,
        format,
        schema,
        options or {},
        partition_keys=partition_keys,
        filters=filters,
        declared=declared,
    )
    assert CONNECTOR.create_source is not None
    created = CONNECTOR.create_source(table)
    assert isinstance(created, FileSource)
    return created


def sink(
    path: Path | str,
    format: str,
    schema: Schema,
    options: Mapping[str, Any] | None = None,
    *,
    partition_keys: tuple[str, ...] = (),
    primary_key: tuple[str, ...] = (),
    updating: bool = False,
) -> FileSink:
    table = _definition(
        CONNECTOR.sink_options,
        path,
        format,
        schema,
        options or {},
        partition_keys=partition_keys,
        primary_key=primary_key,
        updating=updating,
    )
    assert CONNECTOR.create_sink is not None
    created = CONNECTOR.create_sink(table)
    assert isinstance(created, FileSink)
    return created


def lookup(
    path: Path | str,
    format: str,
    schema: Schema,
    keys: tuple[str, ...],
    options: Mapping[str, Any] | None = None,
    *,
    partition_keys: tuple[str, ...] = (),
    declared: Schema | None = None,
) -> LookupSource:
    table = _definition(
        CONNECTOR.lookup_options,
        path,
        format,
        schema,
        options or {},
        partition_keys=partition_keys,
        declared=declared,
    )
    assert CONNECTOR.create_lookup is not None
    return CONNECTOR.create_lookup(table, keys)


def read(source: FileSource, *, parallelism: int = 1, batch_rows: int = 1000) -> Rows:
    """All rows of a bounded source."""
    drive = SourceDrive(source, parallelism=parallelism, batch_rows=batch_rows)
    try:
        return drive.run()
    finally:
        drive.close()


def visible_files(folder: Path) -> list[Path]:
    """Files that are not hidden, sorted."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))


def hidden_files(folder: Path) -> list[Path]:
    """Files whose name begins with a dot."""
    return sorted(p for p in folder.rglob(".*") if p.is_file())
