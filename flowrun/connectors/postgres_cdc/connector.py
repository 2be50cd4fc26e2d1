"""The options of `postgres-cdc`, with the names of Flink CDC's, and the record that the registry finds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from flowrun.api.connector import Connector, TableDefinition, TablePlace
from flowrun.api.source import Delivery
from flowrun.connectors.jdbc.address import postgres_place
from flowrun.connectors.jdbc.postgres.connecting import CLIENT
from flowrun.connectors.postgres_cdc.database import CapturedTable, access_to
from flowrun.connectors.postgres_cdc.fetcher import Capture
from flowrun.connectors.postgres_cdc.rows import check_columns
from flowrun.connectors.postgres_cdc.source import PostgresCdcSource
from flowrun.core.options import Option, Options, OptionType
from flowrun.errors import OptionError

_SLOT = re.compile(r"[a-z0-9_]{1,55}")

_MOST_PORT = 65_535
_LONGEST_NAME = 63
"""What servers keep of a name, in bytes."""
_ENCRYPTION = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")

OPTIONS = (
    Option("hostname", OptionType.STRING, "Name or address of the server.", required=True),
    Option("port", OptionType.INT, "Its port.", default=5432, minimum=1),
    Option("database-name", OptionType.STRING, "The database.", required=True),
    Option("schema-name", OptionType.STRING, "The schema of the table, as it is spelled.", default="public"),
    Option("table-name", OptionType.STRING, "The table, as it is spelled.", required=True),
    Option(
        "username",
        OptionType.STRING,
        "The user, who needs the right to replicate and to read the table.",
        required=True,
    ),
    Option("password", OptionType.STRING, "The user's password; shown nowhere.", secret=True),
    Option(
        "slot.name",
        OptionType.STRING,
        "The replication slot, which the server keeps for this pipeline alone: small letters, digits and _.",
        required=True,
    ),
    Option(
        "publication.name",
        OptionType.STRING,
        "The publication that names the table to the slot; it is made if it is missing. Default: the slot's name.",
    ),
    Option(
        "decoding.plugin.name",
        OptionType.ENUM,
        "How the server writes changes.",
        default="pgoutput",
        choices=("pgoutput",),
    ),
    Option(
        "scan.startup.mode",
        OptionType.ENUM,
        "`initial`: the rows that are there, then every change since; `latest-offset`: changes from now on.",
        default="initial",
        choices=("initial", "latest-offset"),
    ),
    Option(
        "scan.incremental.snapshot.chunk.size",
        OptionType.INT,
        "About how many of the rows that are there are read by one query. As many queries run at the same time as the source has "
        "subtasks; those that were over at a checkpoint are not repeated after a failure.",
        default=65_536,
        minimum=1,
    ),
    Option(
        "connect.timeout",
        OptionType.DURATION,
        "How long the server may take to answer when a connection is made.",
        default=10_000,
        minimum=2_000,
    ),
    Option(
        "debezium.database.sslmode",
        OptionType.ENUM,
        "Whether connections are encrypted, and whether the server's certificate is checked, as libpq names it.",
        default="prefer",
        choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    Option(
        "debezium.database.sslrootcert",
        OptionType.STRING,
        "File with the certificates of the authorities that the server's is checked against.",
    ),
    Option("debezium.database.sslcert", OptionType.STRING, "File with the certificate of this client."),
    Option("debezium.database.sslkey", OptionType.STRING, "File with its key."),
    Option("debezium.database.sslpassword", OptionType.STRING, "Password of that file.", secret=True),
    Option(
        "changelog-mode",
        OptionType.ENUM,
        "Accepted for Flink's scripts: whole updates are made of upserts wherever something needs them.",
        choices=("all", "upsert"),
    ),
    Option(
        "heartbeat.interval.ms",
        OptionType.DURATION,
        "Accepted for Flink's scripts: on a quiet table the place in the log moves on with every checkpoint.",
        minimum=0,
    ),
    Option(
        "scan.incremental.snapshot.enabled",
        OptionType.BOOLEAN,
        "Accepted for Flink's scripts: rows that are there are always read in chunks.",
    ),
    Option("scan.snapshot.fetch.size", OptionType.INT, "Accepted for Flink's scripts: rows come as they are sent."),
    Option("connection.pool.size", OptionType.INT, "Accepted for Flink's scripts: a subtask has one connection."),
    Option(
        "connect.max-retries",
        OptionType.INT,
        "Accepted for Flink's scripts: the restart strategy of the job says how often it tries again.",
    ),
    Option(
        "truncate",
        OptionType.ENUM,
        "What TRUNCATE does, which does not say which rows it removes: end the job, or nothing.",
        default="fail",
        choices=("fail", "ignore"),
    ),
)


def create_source(table: TableDefinition) -> PostgresCdcSource:
    """The source of a table definition.

    Raises:
        OptionError: an option is wrong, a column cannot be read, or there is no primary key.
    """
    options = table.options
    if not table.primary_key:
        raise OptionError(
            "connector",
            f"'{table.name}' needs the PRIMARY KEY of its table in PostgreSQL: changes are upserts by it",
            hint="declare PRIMARY KEY (…) NOT ENFORCED",
        )
    slot = options.text("slot.name")
    if not _SLOT.fullmatch(slot):
        raise OptionError("slot.name", f"'{slot}' is no name of a slot: small letters, digits and _, at most 55")
    _check_names(options)
    check_columns(table.schema)
    password = options.get("password")
    access = access_to(
        options.text("hostname"),
        options.integer("port"),
        options.text("database-name"),
        options.text("username"),
        None if password is None else str(password),
        options.text("table-name"),
        {"connect_timeout": str(math.ceil(options.integer("connect.timeout") / 1000)), **_encryption(options)},
    )
    access.learn_secrets()
    captured = CapturedTable(
        access,
        options.text("schema-name"),
        options.text("table-name"),
        slot,
        str(options.get("publication.name") or slot),
    )
    return PostgresCdcSource(
        Capture(
            captured,
            table.schema,
            table.primary_key,
            options.text("scan.startup.mode") == "initial",
            options.integer("scan.incremental.snapshot.chunk.size"),
            options.text("truncate") == "ignore",
        )
    )


def _check_names(options: Options) -> None:
    host, port, publication = options.text("hostname"), options.integer("port"), options.get("publication.name")
    if re.search(r"[\s/@]", host) or host.count(":") == 1:
        raise OptionError(
            "hostname", f"'{host}' is no name or address of a server", hint="the port is an option of its own: 'port'"
        )
    if port > _MOST_PORT:
        raise OptionError("port", f"postgres-cdc: port must be at most {_MOST_PORT}, got {port}")
    if publication is not None and len(str(publication).encode()) > _LONGEST_NAME:
        raise OptionError(
            "publication.name",
            f"'{publication}' is longer than {_LONGEST_NAME} bytes: the server would cut it off",
            hint="shorten it",
        )


def _encryption(options: Options) -> dict[str, str]:
    """What libpq is told of it."""
    given = {name: options.get(f"debezium.database.{name}") for name in _ENCRYPTION}
    return {name: str(value) for name, value in given.items() if value is not None}


def _places(_: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    host, port, database = (str(options.get(n, "5432")) for n in ("hostname", "port", "database-name"))
    return (
        postgres_place(host, port, database, str(options.get("schema-name", "public")), str(options["table-name"])),
    )


CONNECTOR = Connector(
    name="postgres-cdc",
    summary="A table of PostgreSQL and all its changes, from the write-ahead log.",
    source_options=OPTIONS,
    create_source=create_source,
    source_delivery=Delivery.EXACTLY_ONCE,
    client=CLIENT,
    places=_places,
    reading_leaves="a replication slot and a publication in the database",
    notes="See docs/connectors/postgres-cdc.md.",
)
