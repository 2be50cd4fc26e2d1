"""Sources, lookups and sinks over tables of a test, built the way a front end does."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol, cast

import pyarrow as pa

from flowrun.api.connector import PushedFilter
from flowrun.api.lookup import Lookup, LookupContext
from flowrun.connectors.jdbc.sink import JdbcSink
from flowrun.connectors.jdbc.source import JdbcSource
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Schema
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_lookup, create_sink, create_source
from flowrun.testing.connector_conformance import Rows, SourceDrive
from flowrun.testing.metrics import RecordedMetrics
from tests.servers.postgres import PostgresDatabase

CHUNK = 1000


class Database(Protocol):
    """What tests have tables in."""

    @property
    def jdbc_url(self) -> str: ...

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of the last of some statements."""
        ...


def options_of(database: Database, table: str, **more: object) -> dict[str, object]:
    """What a user's table has; keyword arguments have _ for - and __ for a dot."""
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in more.items()}
    is_server = isinstance(database, PostgresDatabase)
    who = {"username": database.user, "password": database.password} if is_server else {}
    return {"url": database.jdbc_url, "table-name": table, **who, **named}


def source(
    options: Mapping[str, object],
    schema: Schema,
    declared: Schema | None = None,
    filters: tuple[PushedFilter, ...] = (),
) -> JdbcSource:
    return cast(JdbcSource, create_source(TableReference("t", "jdbc", options), schema, declared, filters))


def read(made: JdbcSource, parallelism: int = 1, batch_rows: int = CHUNK) -> Rows:
    drive = SourceDrive(made, parallelism=parallelism, batch_rows=batch_rows)
    try:
        return drive.run()
    finally:
        drive.close()


@contextmanager
def lookup(
    options: Mapping[str, object], schema: Schema, keys: tuple[str, ...], declared: Schema | None = None
) -> Iterator[Lookup]:
    made = create_lookup(TableReference("t", "jdbc", options), schema, keys, declared)
    opened = pickle.loads(pickle.dumps(made)).create_lookup(LookupContext(0, 1, ManualClock(), RecordedMetrics()))
    with closing(opened):
        opened.open()
        yield opened


def ask(table: Lookup, *columns: pa.Array) -> list[tuple[int, tuple[Any, ...]]]:
    """(position of the key, row) of what is found."""
    found = table.find(pa.record_batch(list(columns), names=[f"k{i}" for i in range(len(columns))]))
    return [(int(p), tuple(r.values())) for p, r in zip(found.probe, found.rows.to_pylist(), strict=True)]


def sink(options: Mapping[str, object], schema: Schema, primary_key: tuple[str, ...] = ()) -> JdbcSink:
    table = TableReference("t", "jdbc", options, primary_key=primary_key)
    return cast(JdbcSink, create_sink(table, schema, unbounded=False, updating=bool(primary_key)))


def batch(schema: Schema, rows: list[tuple[Any, ...]], kinds: str = "") -> RecordBatch:
    """Rows, and of each the kind as a letter: I, B(efore), A(fter), D."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema.arrow, strict=True)]
    values = [
        {"I": RowKind.INSERT, "B": RowKind.UPDATE_BEFORE, "A": RowKind.UPDATE_AFTER, "D": RowKind.DELETE}[k].value
        for k in kinds
    ]
    return RecordBatch(
        pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), None, pa.array(values, pa.int8()) if kinds else None
    )
