"""The `delta` connector's options, and the record that the registry finds."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.connector import Connector, TablePlace
from flowrun.api.source import Delivery
from flowrun.connectors.delta.sink import create_sink
from flowrun.connectors.delta.source import create_source
from flowrun.connectors.delta.table import CLIENT
from flowrun.connectors.filesystem.table_path import file_place
from flowrun.connectors.lake.options import SINK_OPTIONS as LAKE_SINK_OPTIONS
from flowrun.core.options import Option, OptionType

_COMMON = (
    Option(
        "table-path", OptionType.STRING, "Folder of the table, local or a URI such as s3://bucket/table.", required=True
    ),
    Option(
        "storage-options.#",
        OptionType.STRING,
        "An option of the table's store, as delta-rs names it: storage-options.AWS_REGION, storage-options.AWS_ENDPOINT_URL.",
    ),
    Option(
        "storage-secrets.#",
        OptionType.STRING,
        "The same for what must not be shown: storage-secrets.AWS_SECRET_ACCESS_KEY.",
        secret=True,
    ),
)

SOURCE_OPTIONS = (
    *_COMMON,
    Option(
        "mode",
        OptionType.ENUM,
        "batch reads a version of the table and ends; streaming goes on with the rows that later versions add.",
        default="batch",
        choices=("batch", "streaming"),
    ),
    Option("versionAsOf", OptionType.INT, "The version to read; the newest one by default.", minimum=0),
    Option("timestampAsOf", OptionType.STRING, "Read the version that was the newest at this time (UTC)."),
    Option(
        "startingVersion",
        OptionType.STRING,
        "In mode streaming: read what this version and later ones added, not the rows before; 'latest': only what comes from now on.",
    ),
    Option(
        "startingTimestamp",
        OptionType.STRING,
        "As startingVersion, from the first version that was committed at this time (UTC).",
    ),
    Option(
        "updateCheckIntervalMillis",
        OptionType.INT,
        "In mode streaming: how often to look for new versions, in ms.",
        default=5000,
        minimum=1,
    ),
    Option(
        "ignoreDeletes",
        OptionType.BOOLEAN,
        "In mode streaming: pass over versions that only remove rows.",
        default=False,
    ),
    Option(
        "ignoreChanges",
        OptionType.BOOLEAN,
        "In mode streaming: read the files of versions that update or remove rows as if their rows were new.",
        default=False,
    ),
)


def _places(_: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    return (file_place(str(options["table-path"])),)


CONNECTOR = Connector(
    name="delta",
    summary="Delta Lake tables.",
    source_options=SOURCE_OPTIONS,
    sink_options=(*_COMMON, *LAKE_SINK_OPTIONS),
    create_source=create_source,
    create_sink=create_sink,
    source_delivery=Delivery.EXACTLY_ONCE,
    sink_delivery=Delivery.EXACTLY_ONCE,
    partitions=True,
    client=CLIENT,
    places=_places,
    notes=(
        "A checkpoint is one version of the table. With a PRIMARY KEY, rows go in by MERGE. A sink creates the table if it is not there. "
        "A source of mode streaming reads the table as it is, then what is added to it."
    ),
)
