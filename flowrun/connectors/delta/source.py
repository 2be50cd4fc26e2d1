"""The source of the `delta` connector: a version of a table, or the table and all that is added to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.api.connector import PushedFilter, TableDefinition
from flowrun.api.format import ReadRequest
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceReader,
    Split,
    SplitEnumerator,
    split_list,
)
from flowrun.connectors.delta.log import AddedFile, changes_of, files_of, kept_rows, version_at
from flowrun.connectors.delta.table import DeltaFolder, DeltaLocation, location_of
from flowrun.connectors.formats.damage import DamagedInputError, unreadable
from flowrun.connectors.formats.parquet_format import ParquetReader
from flowrun.connectors.formats.parquet_statistics import column_may_match
from flowrun.connectors.formats.text_values import parse_text
from flowrun.connectors.lake.instants import instant_option
from flowrun.connectors.lake.source import LakeEnumerator, LakeReader, Planned, ReadRows
from flowrun.core.clock import Clock
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, boolean, integer, mapping, members, optional, text
from flowrun.errors import ConnectorError, DataError, OptionError

LATEST = "latest"

_POSITION = members(
    {
        "path": text,
        "partition": mapping(optional(text)),
        "version": integer(),
        "deletes": boolean,
        "unit": integer(),
        "row": integer(),
    }
)


@record(slots=False)
class DeltaSource:
    """Reads a Delta table.

    Attributes:
        location: of the table.
        schema: the columns that are read.
        declared: all columns that the user declared.
        options: all parsed options.
        filters: hints for reading less.
        follows: whether it goes on with what is added to the table.
    """

    location: DeltaLocation
    schema: Schema
    declared: Schema
    options: Options
    filters: tuple[PushedFilter, ...]
    follows: bool

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded if the table is followed."""
        return Boundedness.UNBOUNDED if self.follows else Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once: files are read again from exact positions."""
        return Delivery.EXACTLY_ONCE

    @property
    def position_shape(self) -> Shape:
        """A data file, the version at which it was found, and the row that comes next."""
        return _POSITION

    @property
    def enumerator_shape(self) -> Shape:
        """The files that were not handed out, and the version up to which files were found."""
        return members({"pending": split_list(_POSITION), "version": optional(integer(-1))})

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator, which finds files in the table's log."""
        return LakeEnumerator(_DeltaPlan(self), restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader of data files."""
        return LakeReader(_DeltaFileOpener(self, context.batch_rows), context)


class _DeltaPlan:
    """Finds files in the log."""

    def __init__(self, source: DeltaSource) -> None:
        self._source = source
        self._options = source.options

    @property
    def interval_ms(self) -> int | None:
        """How often to look for new versions."""
        return self._options.integer("updateCheckIntervalMillis") if self._source.follows else None

    def first(self) -> Planned:
        """The files of the version that is read first; none if the table is followed from a later one on."""
        folder = self._open(self._first_version())
        start = self._start()
        if start is None:
            return Planned(folder.version, tuple(self._splits(files_of(folder), folder.version)))
        return self.after(start - 1)

    def _first_version(self) -> int | None:
        version = self._options.get("versionAsOf")
        if version is not None:
            return int(version)
        time_ms = instant_option(self._options, "timestampAsOf")
        return None if time_ms is None else version_at(self._source.location.open(), time_ms, after=False)

    def _start(self) -> int | None:
        """The version whose changes come first; None: those behind the newest one, after its rows."""
        given = self._options.get("startingVersion")
        if given == LATEST:
            return self._source.location.open().version + 1
        if given is not None:
            return int(given)
        time_ms = instant_option(self._options, "startingTimestamp")
        return None if time_ms is None else version_at(self._source.location.open(), time_ms, after=True)

    def _open(self, version: int | None) -> DeltaFolder:
        folder = self._source.location.open(version)
        folder.check_source(self._source.declared)
        return folder

    def after(self, version: int | None) -> Planned:
        """The files that were added by the versions behind one."""
        folder = self._open(None)
        begin = -1 if version is None else version
        splits: list[Split] = []
        for number in range(begin + 1, folder.version + 1):
            changes = changes_of(folder, number)
            if changes.removes:
                self._check_removes(number, only_removes=not changes.added)
            splits += self._splits(iter(changes.added), number)
        return Planned(max(begin, folder.version), tuple(splits))

    def _check_removes(self, version: int, *, only_removes: bool) -> None:
        if self._options.flag("ignoreChanges") or (only_removes and self._options.flag("ignoreDeletes")):
            return
        what = "removed rows" if only_removes else "updated or removed rows"
        option = "ignoreDeletes" if only_removes else "ignoreChanges"
        more = "" if only_removes else "; rows that such a version only moved to another file are then read again"
        raise ConnectorError(
            f"version {version} of the Delta table at {self._source.location.path.text} {what}, but the table is followed for added rows",
            retryable=False,
            hint=f"{option} = true passes over that{more}",
        )

    def _splits(self, files: Iterator[AddedFile], version: int) -> Iterator[Split]:
        for file in files:
            if not _may_hold_rows(file, self._source.filters, self._source.declared):
                continue
            position: dict[str, JsonValue] = {
                "path": file.path,
                "partition": dict(file.partition),
                "version": version,
                "deletes": file.has_deletes,
                "unit": 0,
                "row": 0,
            }
            yield Split(f"{version}/{file.path}", position)


@record
class _Statistics:
    """What the log says of one column of a file; see `column_may_match`."""

    low: Any
    high: Any
    null_count: int | None

    @property
    def has_null_count(self) -> bool:
        return self.null_count is not None

    @property
    def has_min_max(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def min(self) -> Any:
        return self.low

    @property
    def max(self) -> Any:
        return self.high


def _may_hold_rows(file: AddedFile, filters: tuple[PushedFilter, ...], declared: Schema) -> bool:
    for pushed in filters:
        if pushed.column not in declared:
            continue
        kind = declared.field(pushed.column).type
        rows = 1 if file.rows is None else file.rows
        if pushed.column in file.partition:
            value = _scalar(file.partition[pushed.column], pushed.column, declared, file.path).as_py()
            about = _Statistics(value, value, rows if value is None else 0)
        elif kind.is_timestamp or file.rows is None:  # writers cut the bounds of timestamps
            continue
        else:
            about = _Statistics(
                file.lows.get(pushed.column), file.highs.get(pushed.column), file.nulls.get(pushed.column)
            )
        if not column_may_match(about, rows, pushed, kind):
            return False
    return True


def _scalar(value: str | None, name: str, declared: Schema, path: str) -> pa.Scalar:
    kind = declared.field(name).type
    parsed = parse_text(pa.array([value], pa.string()), kind)
    if parsed.bad:
        raise DataError(f"{path}: partition column '{name}': {parsed.bad[0]}")
    return parsed.values[0]


class _DeltaFileOpener:
    """Reads data files of a Delta table."""

    def __init__(self, source: DeltaSource, batch_rows: int) -> None:
        self._source = source
        self._batch_rows = batch_rows
        self._folder: DeltaFolder | None = None
        self._kept: dict[int, dict[str, pa.Array]] = {}

    def rows(self, split: Split) -> Iterator[ReadRows]:
        """The rows of a file from its position on."""
        if self._folder is None:
            self._folder = self._source.location.open()
        at = dict(split.position)
        path = cast(str, at["path"])
        values = cast("Mapping[str, str | None]", at["partition"])
        if not self._folder.storage.holds(path):
            raise ConnectorError(
                f"the state asks to read '{path}', which is not in the table's folder", retryable=False
            )
        stored = self._source.schema.select(n for n in self._source.schema.names if n not in values)
        declared = self._source.declared.select(n for n in self._source.declared.names if n not in values)
        filters = tuple(f for f in self._source.filters if f.column not in values)
        reader = ParquetReader(ReadRequest(stored, declared, self._source.options, filters))
        kept = self._kept_rows(cast(int, at["version"]), path) if at["deletes"] else None
        with self._folder.storage.open(path) as file, _damage_told():
            firsts = [] if kept is None else _first_rows(file, path)
            for found in reader.read(file, path, cast(int, at["unit"]), cast(int, at["row"]), None, self._batch_rows):
                rows = found.columns
                if kept is not None:
                    end = firsts[found.unit] + found.row
                    rows = rows.filter(_mask(kept, end - rows.num_rows, end))
                position = {**at, "unit": found.unit, "row": found.row}
                yield ReadRows(self._with_partition(rows, values, path), position)

    def _with_partition(self, rows: pa.RecordBatch, values: Mapping[str, str | None], path: str) -> pa.RecordBatch:
        schema = self._source.schema
        if not any(n in values for n in schema.names):
            return rows
        arrays = [
            pa.repeat(_scalar(values[n], n, schema, path), rows.num_rows) if n in values else rows.column(n)
            for n in schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)

    def _kept_rows(self, version: int, path: str) -> pa.Array:
        if version not in self._kept:
            self._kept = {version: kept_rows(self._source.location.open(version))}
        return self._kept[version].get(path, pa.array([], pa.bool_()))


@contextmanager
def _damage_told() -> Iterator[None]:
    """If a file is damaged, the error says what helps a table of this kind."""
    try:
        yield
    except DamagedInputError as error:
        error.hint = "restore it from a copy, or restore an earlier version of the table"
        raise


def _first_rows(file: Any, path: str) -> list[int]:
    """The number of the first row of each row group, and behind them that of all rows."""
    try:
        metadata = pq.ParquetFile(file).metadata
    except (pa.ArrowException, OSError) as error:
        raise unreadable(f"{path} is no Parquet file or is truncated", error) from error
    counts = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    return [0, *np.cumsum(counts).tolist()]


def _mask(kept: pa.Array, begin: int, end: int) -> pa.Array:
    """Which rows are there; behind the end of `kept` all are."""
    known = kept.slice(begin, max(0, min(end, len(kept)) - begin))
    more = end - begin - len(known)
    return pa.concat_arrays([known, pa.array(np.ones(more, np.bool_))]) if more else known


def create_source(table: TableDefinition) -> DeltaSource:
    """The source of a table definition.

    Raises:
        OptionError: options contradict each other.
    """
    options = table.options
    follows = options.text("mode") == "streaming"
    for first, second in (("versionAsOf", "timestampAsOf"), ("startingVersion", "startingTimestamp")):
        if options.get(first) is not None and options.get(second) is not None:
            raise OptionError(second, f"{first} and {second} exclude each other", hint="leave one out")
    for name in ("versionAsOf", "timestampAsOf"):
        if follows and options.get(name) is not None:
            raise OptionError(
                name,
                f"{name} reads one version of the table, and mode = streaming follows it",
                hint="use startingVersion",
            )
    for name in ("startingVersion", "startingTimestamp"):
        if not follows and options.get(name) is not None:
            raise OptionError(name, f"{name} needs mode = streaming", hint="versionAsOf reads one version of the table")
    given = options.get("startingVersion")
    if given is not None and given != LATEST and not str(given).isdigit():
        raise OptionError("startingVersion", f"startingVersion must be a version or {LATEST}, got '{given}'")
    for name in ("timestampAsOf", "startingTimestamp"):
        instant_option(options, name)
    return DeltaSource(
        location=location_of(options),
        schema=table.schema,
        declared=table.declared or table.schema,
        options=options,
        filters=table.filters,
        follows=follows,
    )
