"""The data files of a Delta table: which partition they are of, and their description in the table's log."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.connectors.delta.table import DeltaFolder, DeltaLocation, delta_arrow
from flowrun.connectors.filesystem.partitions import DEFAULT_PARTITION_NAME, split_by_partition
from flowrun.connectors.lake.columns import fitted
from flowrun.connectors.lake.committables import CHANGE_FOLDER
from flowrun.connectors.lake.storage import TableStorage
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import SetupError

_PLAIN = re.compile(r"[^A-Za-z0-9_.=/-]")
_LONGEST_BOUND = 32
"""Longer texts are no bounds: a cut one would have to be rounded."""
_INDEXED = 32
"""As other writers do, the first columns have statistics."""


@record
class OpenDeltaTable:
    """Opens a table for a writer; can be pickled.

    Attributes:
        location: of the table.
        schema: the columns of the rows.
        partitions: the columns that partition a table that is created.
        keys: those of the primary key by which changes are applied; empty: rows are appended.
    """

    location: DeltaLocation
    schema: Schema
    partitions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def __call__(self) -> DeltaFiles:
        """The data files of the table, which is created if it is not there."""
        try:
            folder = self.location.open()
        except SetupError:
            self.location.create(self.schema, self.partitions)
            folder = self.location.open()
        folder.check_sink(self.schema, self.partitions, self.keys)
        return DeltaFiles(folder, self.schema)


class DeltaFiles:
    """How a Delta table wants its data files.

    Args:
        folder: the table.
        schema: the columns of the rows that are written.
    """

    def __init__(self, folder: DeltaFolder, schema: Schema) -> None:
        self._folder = folder
        self._partitions = schema.select(folder.partitions)
        self._required = tuple(f.name for f in folder.arrow if not f.nullable)
        stored = [f for f in schema if f.name not in self._partitions]
        self._arrow = pa.schema([pa.field(f.name, delta_arrow(f.type)) for f in stored])

    @property
    def storage(self) -> TableStorage:
        """The folder of the table."""
        return self._folder.storage

    @property
    def arrow(self) -> pa.Schema:
        """The columns of a data file: all but those that partition the table."""
        return self._arrow

    @property
    def required(self) -> Sequence[str]:
        """The columns of the table that are NOT NULL."""
        return self._required

    @property
    def change_location(self) -> str:
        """The folder of changes that wait for their commit."""
        return CHANGE_FOLDER

    def split(self, columns: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """(a partition as `column=value/…` with %XX, its rows), for each partition of a batch."""
        if not self._partitions.fields:
            yield "", fitted(columns, self._arrow)
            return
        for partition, rows in split_by_partition(columns, self._partitions, DEFAULT_PARTITION_NAME):
            yield partition, fitted(rows, self._arrow)

    def location(self, partition: str, name: str) -> str:
        """Where the data file `name` is to be; the log, not the folder, says which partition it is of."""
        folder = _PLAIN.sub("_", partition)
        return f"{folder}/{name}" if folder else name

    def describe(self, partition: str, location: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        """A finished data file as the log describes it."""
        return {
            "path": location,
            "size": size,
            "partition": self._values(partition),
            "stats": json.dumps(statistics(metadata, self._arrow)),
        }

    def _values(self, partition: str) -> dict[str, str | None]:
        values: dict[str, str | None] = {}
        for field, part in zip(self._partitions, partition.split("/") if partition else (), strict=True):
            text = unquote(part.partition("=")[2])
            if field.type.is_timestamp and text.endswith("Z"):
                text = text.replace(" ", "T")
            values[field.name] = None if text == DEFAULT_PARTITION_NAME else text
        return values


def statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """The statistics of a data file, in the form of Delta's log: bounds and NULLs of the first columns that are not nested."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for name in schema.names[:_INDEXED]:
        if name not in places:
            continue
        parts = [metadata.row_group(g).column(places[name]).statistics for g in range(metadata.num_row_groups)]
        if not parts or any(p is None or not p.has_null_count for p in parts):
            continue
        nulls[name] = sum(p.null_count for p in parts)
        bounded = [
            p for p, g in zip(parts, range(len(parts)), strict=True) if p.null_count < metadata.row_group(g).num_rows
        ]
        if not bounded or not all(p.has_min_max for p in bounded):
            continue
        low, high = _bound(min(p.min for p in bounded)), _bound(max(p.max for p in bounded))
        if low is not None and high is not None:
            lows[name], highs[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _bound(value: Any) -> str | int | float | None:
    """A bound in JSON; None: it cannot be one."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _LONGEST_BOUND else None
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text if value.tzinfo is None else f"{text}Z"
        case datetime.date():
            return value.isoformat()
        case _:
            return None
