"""The jdbc connector's options, and the record that the registry finds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from flowrun.api.client_library import ClientLibrary
from flowrun.api.connector import Connector, TableDefinition, TablePlace
from flowrun.api.source import Delivery
from flowrun.connectors.jdbc.address import parse_address, postgres_place
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.lookup import JdbcLookupSource
from flowrun.connectors.jdbc.postgres.connecting import CLIENT
from flowrun.connectors.jdbc.relation import Access
from flowrun.connectors.jdbc.sink import BufferLimits, JdbcSink
from flowrun.connectors.jdbc.source import JdbcSource, PartitionScan
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.errors import OptionError, did_you_mean

_EXACTLY_ONCE = "exactly-once"
_PARTITION = "scan.partition."
_PARTITION_OPTIONS = tuple(_PARTITION + name for name in ("column", "num", "lower-bound", "upper-bound"))

_MOST_RANGES = 100_000

CONNECTION_OPTIONS = (
    Option(
        "url",
        OptionType.STRING,
        "The database: jdbc:postgresql://host:port/database, jdbc:duckdb:path or jdbc:sqlite:path, perhaps with parameters behind it.",
        required=True,
    ),
    Option(
        "table-name",
        OptionType.STRING,
        "The table, perhaps with its schema before a dot; a name that is not there as it is spelled is looked for in lower case.",
        required=True,
    ),
    Option("username", OptionType.STRING, "The user; needs 'password'."),
    Option("password", OptionType.STRING, "The user's password; shown nowhere.", secret=True),
    Option("driver", OptionType.STRING, "The class of a JDBC driver: accepted for Flink's scripts, and not needed."),
    Option(
        "connection.max-retry-timeout",
        OptionType.DURATION,
        "How long a server may leave a call without any answer before its connection is given up; of a file, how long it may be locked.",
        default=60_000,
        minimum=1_000,
    ),
)

SOURCE_OPTIONS = (
    *CONNECTION_OPTIONS,
    Option(
        "scan.partition.column",
        OptionType.STRING,
        "Reads ranges of this column's values (numbers, dates as days, timestamps as milliseconds since 1970) beside each other; "
        "without it the table is cut by its storage.",
    ),
    Option("scan.partition.num", OptionType.INT, "How many ranges.", minimum=1),
    Option("scan.partition.lower-bound", OptionType.INT, "Where the first range begins; rows with less are not read."),
    Option("scan.partition.upper-bound", OptionType.INT, "Where the last range ends; rows with more are not read."),
    Option(
        "scan.fetch-size",
        OptionType.INT,
        "Accepted for Flink's scripts: rows come in batches of some megabytes.",
        minimum=0,
    ),
    Option("scan.auto-commit", OptionType.BOOLEAN, "Accepted for Flink's scripts: queries need no transaction."),
)

SINK_OPTIONS = (
    *CONNECTION_OPTIONS,
    Option(
        "sink.delivery-guarantee",
        OptionType.ENUM,
        "At least once, rows are written as they come. Exactly once, they wait beside the checkpoint, and are written when it is complete.",
        default="at-least-once",
        choices=("at-least-once", _EXACTLY_ONCE),
    ),
    Option(
        "sink.buffer-flush.max-rows",
        OptionType.INT,
        "Rows that are gathered before they are written together; 0: each batch by itself.",
        default=100_000,
        minimum=0,
    ),
    Option(
        "sink.buffer-flush.interval",
        OptionType.DURATION,
        "How long rows wait at most before they are written; 0: until there are enough, or a checkpoint.",
        default=1_000,
        minimum=0,
    ),
    Option(
        "sink.max-retries",
        OptionType.INT,
        "How often writing is tried again after a failure that may pass.",
        default=3,
        minimum=0,
    ),
)


def _access(options: Options) -> Access:
    address = parse_address(options.text("url"))
    user, password = (cast("str | None", options.get(name)) for name in ("username", "password"))
    if password is not None and user is None:
        raise OptionError("username", "option 'password' needs option 'username'")
    if user is not None and address.is_file:
        raise OptionError(
            "username",
            f"jdbc:{address.scheme}: is a file, which has no users",
            hint="leave 'username' and 'password' out",
        )
    silence_s = address.silence_s or options.integer("connection.max-retry-timeout") / 1000
    access = Access(address, options.text("table-name"), user, password, silence_s)
    access.learn_secrets()
    return access


def _partition(options: Options, declared: Schema) -> PartitionScan | None:
    given = [name for name in _PARTITION_OPTIONS if options.get(name) is not None]
    if not given:
        return None
    missing = [name for name in _PARTITION_OPTIONS if name not in given]
    if missing:
        raise OptionError(
            missing[0],
            f"option '{given[0]}' needs option '{missing[0]}'",
            hint="set all four of scan.partition.*, or none",
        )
    column, lower, upper = options.text(_PARTITION + "column"), *(options.integer(n) for n in _PARTITION_OPTIONS[2:])
    if column not in declared:
        raise OptionError(
            _PARTITION + "column",
            f"'scan.partition.column' is '{column}', which is no column of the table",
            hint=did_you_mean(column, declared.names),
        )
    if lower > upper:
        raise OptionError(
            _PARTITION + "lower-bound",
            f"'scan.partition.lower-bound' {lower} is above 'scan.partition.upper-bound' {upper}",
        )
    number = options.integer(_PARTITION + "num")
    if number > _MOST_RANGES:
        raise OptionError(
            _PARTITION + "num",
            f"'scan.partition.num' is at most {_MOST_RANGES:,}, got {number}",
            hint="each range is a query of its own: a few for each subtask are enough",
        )
    return PartitionScan(column, number, lower, upper)


def _create_source(table: TableDefinition) -> JdbcSource:
    declared = table.declared or table.schema
    return JdbcSource(
        _access(table.options), table.schema, declared, table.filters, _partition(table.options, declared)
    )


def _create_lookup(table: TableDefinition, keys: tuple[str, ...]) -> JdbcLookupSource:
    declared = table.declared or table.schema
    return JdbcLookupSource(_access(table.options), table.schema, declared.select(keys))


def _create_sink(table: TableDefinition) -> JdbcSink:
    options = table.options
    limits = BufferLimits(
        options.integer("sink.buffer-flush.max-rows"),
        options.integer("sink.buffer-flush.interval"),
        options.integer("sink.max-retries"),
    )
    access = _access(options)
    dialect_of(access.address.scheme).check_written(table.schema)
    exactly = options.text("sink.delivery-guarantee") == _EXACTLY_ONCE
    delivery = Delivery.EXACTLY_ONCE if exactly else Delivery.AT_LEAST_ONCE
    return JdbcSink(access, table.schema, table.primary_key, limits, delivery)


def _client_of(options: Mapping[str, object]) -> ClientLibrary | None:
    return dialect_of(parse_address(str(options["url"])).scheme).client


def _places(_: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    address = parse_address(str(options["url"]))
    table = str(options["table-name"])
    if address.is_file:
        return (TablePlace(f"{address.scheme} {os.path.abspath(address.database)}", table),)
    hosts, port = address.parameters.get("host", "localhost"), address.parameters.get("port") or "5432"
    return (postgres_place(hosts, port, address.database, address.schema, table),)


CONNECTOR = Connector(
    name="jdbc",
    summary="Tables of PostgreSQL, DuckDB and SQLite: read, looked up in, and written.",
    source_options=SOURCE_OPTIONS,
    sink_options=SINK_OPTIONS,
    lookup_options=CONNECTION_OPTIONS,
    create_source=_create_source,
    create_sink=_create_sink,
    create_lookup=_create_lookup,
    source_delivery=Delivery.EXACTLY_ONCE,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    client=CLIENT,
    client_of=_client_of,
    places=_places,
    notes=(
        "A sink with a PRIMARY KEY replaces and deletes rows by it, one without only adds rows. "
        "A lookup asks one query for all keys of a batch. Batches on Spark read and write the same tables. "
        "DuckDB needs no package more, SQLite pip install 'flowrun-streaming[sqlite]'."
    ),
)
