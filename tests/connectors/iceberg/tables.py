"""Iceberg tables of tests: a catalog in SQLite, and connectors that reach it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from flowrun.api.connector import PushedFilter, TableDefinition
from flowrun.connectors.iceberg import CONNECTOR
from flowrun.connectors.iceberg.sink import IcebergSink
from flowrun.connectors.iceberg.source import IcebergSource
from flowrun.core.elements import RecordBatch
from flowrun.core.options import Option, Options, parse_options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DOUBLE, STRING

ORDERS = Schema.of(id=BIGINT, item=STRING, price=DOUBLE)


def settings(folder: Path, **more: object) -> dict[str, object]:
    """Options that name the table `db.t` of the catalog in a folder; None leaves one out."""
    given = {
        "catalog-name": "test",
        "catalog-type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": str(folder / "warehouse"),
        "catalog-database": "db",
        "catalog-table": "t",
        **more,
    }
    return {k: v for k, v in given.items() if v is not None}


def parsed(declared: Sequence[Option], given: dict[str, object]) -> Options:
    options, problems = parse_options(declared, given, "iceberg")
    if problems:
        raise problems[0]
    return options


def sink(
    folder: Path,
    schema: Schema = ORDERS,
    keys: tuple[str, ...] = (),
    partitions: tuple[str, ...] = (),
    **more: object,
) -> IcebergSink:
    options = parsed(CONNECTOR.sink_options, settings(folder, **more))
    assert CONNECTOR.create_sink is not None
    made = CONNECTOR.create_sink(
        TableDefinition("out", schema, options, primary_key=keys, partition_keys=partitions, updating=bool(keys))
    )
    assert isinstance(made, IcebergSink)
    return made


def source(
    folder: Path, schema: Schema = ORDERS, filters: tuple[PushedFilter, ...] = (), **more: object
) -> IcebergSource:
    options = parsed(CONNECTOR.source_options, settings(folder, **more))
    assert CONNECTOR.create_source is not None
    made = CONNECTOR.create_source(TableDefinition("t", schema, options, filters=filters))
    assert isinstance(made, IcebergSource)
    return made


def catalog(folder: Path) -> Catalog:
    """The client library's own catalog, not the one that the connectors have."""
    folder.mkdir(parents=True, exist_ok=True)
    return load_catalog(
        "test", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )


def table(folder: Path) -> Table:
    return catalog(folder).load_table("db.t")


def create(folder: Path, schema: pa.Schema) -> Table:
    made = catalog(folder)
    made.create_namespace_if_not_exists("db")
    return made.create_table("db.t", schema)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    try:
        found = table(folder).scan().to_arrow()
    except NoSuchTableError:
        return []
    return sorted((tuple(r.values()) for r in found.to_pylist()), key=repr)


def batch(given: list[tuple[Any, ...]], schema: Schema = ORDERS, kinds: list[int] | None = None) -> RecordBatch:
    columns = list(zip(*given, strict=True)) if given else [()] * len(schema)
    arrays = [pa.array(list(c), f.type.arrow) for c, f in zip(columns, schema, strict=True)]
    return RecordBatch(
        pa.RecordBatch.from_arrays(arrays, schema=schema.arrow),
        row_kinds=None if kinds is None else pa.array(kinds, pa.int8()),
    )
