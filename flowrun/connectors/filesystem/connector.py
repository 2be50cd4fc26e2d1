"""The filesystem connector's options, and the record that the registry finds."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.connector import Connector, TablePlace
from flowrun.api.source import Delivery
from flowrun.connectors.filesystem.earlier_output import MODE_OPTION
from flowrun.connectors.filesystem.file_metadata import FILE_METADATA
from flowrun.connectors.filesystem.lookup import RELOAD_INTERVAL, create_lookup
from flowrun.connectors.filesystem.partition_commit import OPTIONS as PARTITION_COMMIT_OPTIONS
from flowrun.connectors.filesystem.partitions import DEFAULT_PARTITION_NAME
from flowrun.connectors.filesystem.sink import create_sink
from flowrun.connectors.filesystem.source import create_source
from flowrun.connectors.filesystem.store_options import STORE_OPTIONS
from flowrun.connectors.filesystem.table_path import file_place
from flowrun.connectors.formats.registry import ERROR_OPTIONS, FILE_FORMATS
from flowrun.core.options import Option, OptionType

_DEFAULT_NAME = Option(
    "partition.default-name",
    OptionType.STRING,
    "Folder name that stands for NULL in a partition column.",
    default=DEFAULT_PARTITION_NAME,
)

SOURCE_OPTIONS = (
    Option(
        "path",
        OptionType.STRING,
        "File, folder (read with its subfolders; names that begin with . or _ are ignored, folders _column=value are not), glob, URI.",
        required=True,
    ),
    Option(
        "source.monitor-interval",
        OptionType.DURATION,
        "Look for new files this often and never end. A file is read once, as found: move it in when it is whole.",
        minimum=1,
    ),
    Option(
        "source.path.regex-pattern", OptionType.STRING, "Only files whose full path matches this regular expression."
    ),
    Option(
        "source.split-size",
        OptionType.MEMORY,
        "Bigger files are read in pieces of about this size, by several readers (not compressed or multi-line ones, nor changes).",
        default=8 << 20,
        minimum=1,
    ),
    _DEFAULT_NAME,
    *STORE_OPTIONS,
    *ERROR_OPTIONS,
)

LOOKUP_OPTIONS = (
    *(o for o in SOURCE_OPTIONS if o.name != "source.monitor-interval"),
    Option(
        RELOAD_INTERVAL,
        OptionType.DURATION,
        "Read the files anew when what is in memory is this old; without it they are read once.",
        minimum=1,
    ),
)

SINK_OPTIONS = (
    Option("path", OptionType.STRING, "Folder for the files, local or a URI; created if it is missing.", required=True),
    MODE_OPTION,
    Option(
        "sink.rolling-policy.file-size",
        OptionType.MEMORY,
        "A file that has reached this size is closed and the next one begun.",
        default=128 << 20,
        minimum=1,
    ),
    Option(
        "sink.rolling-policy.rollover-interval",
        OptionType.DURATION,
        "A file that has been open this long is closed.",
        default=30 * 60_000,
        minimum=1,
    ),
    Option(
        "sink.rolling-policy.check-interval",
        OptionType.DURATION,
        "How often the age of open files is looked at.",
        default=60_000,
        minimum=1,
    ),
    Option(
        "sink.rolling-policy.inactivity-interval",
        OptionType.DURATION,
        "A file that has got no rows for this long is closed; never by default.",
        minimum=1,
    ),
    Option(
        "sink.upsert.buckets",
        OptionType.INT,
        "Files (a partition) of a table with a primary key that gets updates: each is replaced whole by commits that change it.",
        default=16,
        minimum=1,
    ),
    *STORE_OPTIONS,
    *PARTITION_COMMIT_OPTIONS,
    _DEFAULT_NAME,
)


def _places(_: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    return (file_place(str(options["path"])),)


CONNECTOR = Connector(
    name="filesystem",
    summary="Files and folders: local, or any store that pyarrow reaches (s3://, gs://, hdfs://).",
    source_options=SOURCE_OPTIONS,
    sink_options=SINK_OPTIONS,
    create_source=create_source,
    create_sink=create_sink,
    metadata=FILE_METADATA,
    lookup_options=LOOKUP_OPTIONS,
    create_lookup=create_lookup,
    source_delivery=Delivery.EXACTLY_ONCE,
    sink_delivery=Delivery.EXACTLY_ONCE,
    formats=FILE_FORMATS,
    places=_places,
    partitions=True,
    buckets=True,
    reads_fields=True,
    notes=(
        "Compressed files (.gz .bz2 .zst .lz4) are read as they are. PARTITIONED BY columns are folders `column=value`. "
        "Files become visible whole, by a rename, when they are committed; until then their names begin with a dot."
    ),
)
