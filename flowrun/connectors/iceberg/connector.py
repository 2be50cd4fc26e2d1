"""The `iceberg` connector's options, and the record that the registry finds."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.connector import Connector, TablePlace
from flowrun.api.source import Delivery
from flowrun.connectors.iceberg.catalog import CLIENT, TYPES
from flowrun.connectors.iceberg.sink import create_sink
from flowrun.connectors.iceberg.source import STRATEGIES, create_source
from flowrun.connectors.lake.options import SINK_OPTIONS as LAKE_SINK_OPTIONS
from flowrun.core.options import Option, OptionType

CATALOG_OPTIONS = (
    Option(
        "catalog-type",
        OptionType.ENUM,
        "rest: a REST catalog; sql: tables of a database (SQLite, PostgreSQL); in-memory: it goes with the process, for tests.",
        required=True,
        choices=TYPES,
    ),
    Option("uri", OptionType.STRING, "Where the catalog is: http://localhost:8181, or sqlite:////data/catalog.db."),
    Option(
        "warehouse", OptionType.STRING, "Folder or URI below which new tables are made; for rest, the warehouse's name."
    ),
    Option("credential", OptionType.STRING, "For rest: client id and secret, `id:secret`.", secret=True),
    Option("token", OptionType.STRING, "For rest: a bearer token.", secret=True),
    Option(
        "catalog-options.#",
        OptionType.STRING,
        "Any other property of the catalog or its files, as PyIceberg names it: catalog-options.s3.endpoint.",
    ),
    Option(
        "catalog-secrets.#",
        OptionType.STRING,
        "The same for what must not be shown: catalog-secrets.s3.secret-access-key.",
        secret=True,
    ),
)

_COMMON = (
    Option("catalog-name", OptionType.STRING, "Name of the catalog.", required=True),
    *CATALOG_OPTIONS,
    Option(
        "catalog-database", OptionType.STRING, "Namespace of the table, with dots between levels.", default="default"
    ),
    Option("catalog-table", OptionType.STRING, "Name of the table; that of the declaration by default."),
)

SOURCE_OPTIONS = (
    *_COMMON,
    Option("streaming", OptionType.BOOLEAN, "Go on with the rows that later snapshots add.", default=False),
    Option(
        "monitor-interval",
        OptionType.DURATION,
        "With streaming: how often to look for new snapshots.",
        default=60_000,
        minimum=1,
    ),
    Option(
        "starting-strategy",
        OptionType.ENUM,
        "With streaming, what is read first: the whole table, or what the newest, the oldest or a certain snapshot added.",
        default="incremental_from_latest_snapshot",
        choices=tuple(STRATEGIES),
    ),
    Option("start-snapshot-id", OptionType.INT, "The snapshot that incremental_from_snapshot_id begins with."),
    Option(
        "start-snapshot-timestamp",
        OptionType.STRING,
        "incremental_from_snapshot_timestamp begins with the first snapshot of this time or later: ms since the epoch, or a time (UTC).",
    ),
    Option("snapshot-id", OptionType.INT, "Read this snapshot: time travel."),
    Option(
        "as-of-timestamp", OptionType.STRING, "Read the snapshot of this time: ms since the epoch, or a time (UTC)."
    ),
    Option("branch", OptionType.STRING, "Read the newest snapshot of this branch."),
    Option("tag", OptionType.STRING, "Read the snapshot of this tag."),
    Option(
        "streaming-skip-overwrite-snapshots",
        OptionType.BOOLEAN,
        "With streaming: pass over snapshots that update or overwrite rows.",
        default=False,
    ),
    Option(
        "streaming-skip-delete-snapshots",
        OptionType.BOOLEAN,
        "With streaming: pass over snapshots that only delete rows.",
        default=False,
    ),
)

SINK_OPTIONS = (
    *_COMMON,
    Option(
        "upsert-enabled",
        OptionType.BOOLEAN,
        "With a PRIMARY KEY: whether rows replace those of their key; if false, rows that are only inserted are appended. True by default.",
    ),
    *LAKE_SINK_OPTIONS,
)


def _places(table: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    """By the catalog's address, else by its warehouse or name."""
    where = next(str(options[name]) for name in ("uri", "warehouse", "catalog-name") if options.get(name))
    name = options.get("catalog-table") or table
    return (TablePlace(f"iceberg {where}", f"{options.get('catalog-database', 'default')}.{name}"),)


CONNECTOR = Connector(
    name="iceberg",
    summary="Apache Iceberg tables.",
    source_options=SOURCE_OPTIONS,
    sink_options=SINK_OPTIONS,
    create_source=create_source,
    create_sink=create_sink,
    source_delivery=Delivery.EXACTLY_ONCE,
    sink_delivery=Delivery.EXACTLY_ONCE,
    partitions=True,
    client=CLIENT,
    places=_places,
    notes=(
        "A checkpoint is one snapshot of the table. With a PRIMARY KEY, files that hold a changed key are written anew (copy on write). A "
        "sink creates the table if it is not there."
    ),
)
