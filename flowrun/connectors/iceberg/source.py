"""The source of the `iceberg` connector: a snapshot of a table, or the table and what later snapshots add to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from flowrun.api.connector import PushedFilter, TableDefinition
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
from flowrun.connectors.formats.arrow_fit import fit_column
from flowrun.connectors.formats.damage import DamagedInputError, is_damage
from flowrun.connectors.iceberg.catalog import first_line, library, may_pass
from flowrun.connectors.iceberg.data_files import partition_record, partition_texts
from flowrun.connectors.iceberg.filters import iceberg_filter
from flowrun.connectors.iceberg.sink import table_name
from flowrun.connectors.iceberg.table import IcebergName, IcebergTable
from flowrun.connectors.lake.instants import instant_option
from flowrun.connectors.lake.source import LakeEnumerator, LakeReader, Planned, ReadRows
from flowrun.core.clock import Clock
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, boolean, integer, listed, members, optional, text
from flowrun.errors import ConnectorError, DataError, FlowrunError, OptionError, SetupError, StateError

_WHOLE, _LATEST, _EARLIEST = (
    "table_scan_then_incremental",
    "incremental_from_latest_snapshot",
    "incremental_from_earliest_snapshot",
)
_ID, _TIMESTAMP = "incremental_from_snapshot_id", "incremental_from_snapshot_timestamp"
STRATEGIES = {_WHOLE: "", _LATEST: "", _EARLIEST: "", _ID: "start-snapshot-id", _TIMESTAMP: "start-snapshot-timestamp"}
"""Strategy → the option that it needs."""
_TRAVELS = ("snapshot-id", "as-of-timestamp", "branch", "tag")

_POSITION = members(
    {
        "path": text,
        "format": text,
        "snapshot": integer(),
        "schema": integer(),
        "spec": integer(),
        "partition": listed(optional(text)),
        "size": integer(),
        "rows": integer(),
        "deletes": boolean,
        "row": integer(),
    }
)


@record(slots=False)
class IcebergSource:
    """Reads an Iceberg table.

    Attributes:
        name: of the table.
        schema: the columns that are read.
        declared: all columns that the user declared.
        options: all parsed options.
        filters: hints for reading less.
    """

    name: IcebergName
    schema: Schema
    declared: Schema
    options: Options
    filters: tuple[PushedFilter, ...]

    @property
    def follows(self) -> bool:
        """Whether it goes on with what is added to the table."""
        return self.options.flag("streaming")

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
        """A data file, the snapshot in which it was found, the schema that it is read by, and the row that comes next."""
        return _POSITION

    @property
    def enumerator_shape(self) -> Shape:
        """The files that were not handed out, and the snapshot up to which files were found."""
        return members({"pending": split_list(_POSITION), "version": optional(integer())})

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator, which finds files in the table's manifests."""
        return LakeEnumerator(_IcebergPlan(self), restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader of data files."""
        return LakeReader(_IcebergFileOpener(self, context.batch_rows), context)


class _IcebergPlan:
    """Finds files in the manifests of snapshots."""

    def __init__(self, source: IcebergSource) -> None:
        self._source = source
        self._options = source.options

    @property
    def interval_ms(self) -> int | None:
        """How often to look for new snapshots."""
        return self._options.integer("monitor-interval") if self._source.follows else None

    def first(self) -> Planned:
        """The files of the snapshot that is read first, or of those that a followed table begins with."""
        opened = self._source.name.open()
        strategy = self._options.text("starting-strategy")
        if self._source.follows and strategy != _WHOLE:
            newest = opened.table.current_snapshot()
            if newest is None:
                opened.check_source(self._source.declared, opened.table.schema())
                return Planned(None, ())
            return self._between(opened, self._before(opened, strategy), newest)
        snapshot = self._snapshot(opened)
        schema = self._schema(opened.table, snapshot)
        opened.check_source(self._source.declared, schema)
        if snapshot is None:
            return Planned(None, ())
        scan = opened.table.scan(row_filter=self._filter(opened.table, schema), snapshot_id=snapshot.snapshot_id)
        return Planned(snapshot.snapshot_id, tuple(self._splits(opened, scan, snapshot.snapshot_id, schema)))

    def _schema(self, table: Any, snapshot: Any) -> Any:
        """The columns that a snapshot is read with: those that it had, if it is an old one or a tag; else those that the table has now."""
        is_old = any(self._options.get(n) is not None for n in _TRAVELS if n != "branch")
        if snapshot is None or not is_old:
            return table.schema()
        return table.schemas().get(snapshot.schema_id, table.schema())

    def _filter(self, table: Any, schema: Any) -> Any:
        """The filters, on columns that are still called as they were: the client library looks them up in the table as it is now."""
        current = {f.name: f.field_id for f in table.schema().fields}
        same = {f.name for f in schema.fields if current.get(f.name) == f.field_id}
        filters = [f for f in self._source.filters if f.column in same]
        return iceberg_filter(filters, self._source.declared, schema)

    def _snapshot(self, opened: IcebergTable) -> Any:
        """The snapshot that is read; None: the table has none yet."""
        table, options = opened.table, self._options
        wanted = next((n for n in _TRAVELS if options.get(n) is not None), None)
        if wanted is None:
            return table.current_snapshot()
        found = None
        if wanted == "snapshot-id":
            found = table.snapshot_by_id(options.integer(wanted))
        elif wanted == "as-of-timestamp":
            found = table.snapshot_as_of_timestamp(instant_option(options, wanted))
        else:
            ref = table.refs().get(options.text(wanted))
            if ref is not None and ref.snapshot_ref_type == wanted:
                found = table.snapshot_by_id(ref.snapshot_id)
        if found is None:
            raise SetupError(
                f"the {opened.name.shown} has no snapshot of {wanted} = {options.get(wanted)}, or it was removed",
                hint=_known(table, wanted),
            )
        return found

    def _before(self, opened: IcebergTable, strategy: str) -> int | None:
        """The id of the snapshot behind which a followed table is read; None: it is read from its first snapshot on."""
        table = opened.table
        snapshots = _lineage(table, table.current_snapshot())
        if strategy == _EARLIEST:
            return cast("int | None", snapshots[-1].parent_snapshot_id)
        if strategy == _LATEST:
            return cast("int | None", snapshots[0].parent_snapshot_id)
        if strategy == _ID:
            wanted = [s for s in snapshots if s.snapshot_id == self._options.integer("start-snapshot-id")]
        else:
            start = instant_option(self._options, "start-snapshot-timestamp") or 0
            wanted = [s for s in reversed(snapshots) if s.timestamp_ms >= start]
            if not wanted:
                return cast(int, snapshots[0].snapshot_id)
        if not wanted:
            raise SetupError(
                f"snapshot {self._options.get('start-snapshot-id')} is none of those of the {opened.name.shown}, or was removed",
                hint=_known(table, "snapshot-id"),
            )
        return cast("int | None", wanted[0].parent_snapshot_id)

    def after(self, version: int | None) -> Planned:
        """The files that were added by the snapshots behind one."""
        opened = self._source.name.open()
        newest = opened.table.current_snapshot()
        if newest is None or newest.snapshot_id == version:
            return Planned(version, ())
        return self._between(opened, version, newest)

    def _between(self, opened: IcebergTable, after: int | None, newest: Any) -> Planned:
        table = opened.table
        new: list[Any] = []
        for snapshot in _lineage(table, newest):
            if snapshot.snapshot_id == after:
                break
            new.append(snapshot)
        else:
            if after is not None and (not new or new[-1].parent_snapshot_id != after):
                raise ConnectorError(
                    f"snapshot {after} of the {opened.name.shown}, up to which it was read, is not among those that led to the newest one: "
                    "snapshots were removed before they were read, or the table was rolled back",
                    retryable=False,
                    hint="begin anew with the table as it is now, or keep snapshots longer",
                )
        schema = table.schema()
        opened.check_source(self._source.declared, schema)
        condition = self._filter(table, schema)
        splits: list[Split] = []
        for snapshot in reversed(new):
            if not self._adds_rows(opened, snapshot):
                continue
            scan = table.incremental_append_scan(
                from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
                to_snapshot_id_inclusive=snapshot.snapshot_id,
                row_filter=condition,
            )
            splits += self._splits(opened, scan, snapshot.snapshot_id, schema)
        return Planned(newest.snapshot_id, tuple(splits))

    def _adds_rows(self, opened: IcebergTable, snapshot: Any) -> bool:
        operation = "append" if snapshot.summary is None else snapshot.summary.operation.value
        if operation in ("overwrite", "delete"):
            option = f"streaming-skip-{operation}-snapshots"
            if not self._options.flag(option):
                did = "updated or overwrote" if operation == "overwrite" else "deleted"
                raise ConnectorError(
                    f"snapshot {snapshot.snapshot_id} of the {opened.name.shown} {did} rows, but the table is followed for added rows",
                    retryable=False,
                    hint=f"{option} = true passes over such snapshots",
                )
        return bool(operation == "append")

    def _splits(self, opened: IcebergTable, scan: Any, snapshot: int, schema: Any) -> Iterator[Split]:
        try:
            tasks = sorted(scan.plan_files(), key=lambda t: str(t.file.file_path))
        except FlowrunError:
            raise
        except Exception as error:
            raise ConnectorError(
                f"the {opened.name.shown} cannot be read: {first_line(error)}", retryable=may_pass(error)
            ) from error
        for task in tasks:
            file = task.file
            position: dict[str, JsonValue] = {
                "path": file.file_path,
                "format": str(file.file_format.value),
                "snapshot": snapshot,
                "schema": schema.schema_id,
                "spec": file.spec_id,
                "partition": list(partition_texts(file.partition, opened.table, file.spec_id)),
                "size": file.file_size_in_bytes,
                "rows": file.record_count,
                "deletes": bool(task.delete_files),
                "row": 0,
            }
            yield Split(f"{snapshot}/{file.file_path}", position)


def _lineage(table: Any, snapshot: Any) -> list[Any]:
    """A snapshot and those that led to it, the newest first, as far back as the table knows them."""
    found = []
    while snapshot is not None:
        found.append(snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return found


def _known(table: Any, wanted: str) -> str:
    if wanted in ("branch", "tag"):
        names = [n for n, ref in table.refs().items() if ref.snapshot_ref_type == wanted]
        return f"it has: {', '.join(sorted(names)) or 'none'}"
    newest = [str(s.snapshot_id) for s in sorted(table.snapshots(), key=lambda s: -s.timestamp_ms)[:5]]
    return f"its newest snapshots are {', '.join(newest)}" if newest else "it has no snapshots yet"


class _IcebergFileOpener:
    """Reads data files of an Iceberg table."""

    def __init__(self, source: IcebergSource, batch_rows: int) -> None:
        self._source = source
        self._batch_rows = batch_rows
        self._opened: IcebergTable | None = None
        self._tasks: tuple[int, Mapping[str, Any]] = (-1, {})

    def rows(self, split: Split) -> Iterator[ReadRows]:
        """The rows of a file from its position on."""
        at = dict(split.position)
        path, snapshot = cast(str, at["path"]), cast(int, at["snapshot"])
        if self._opened is None or self._opened.table.snapshot_by_id(snapshot) is None:
            self._opened = self._source.name.open()
        schema = self._opened.table.schemas().get(cast(int, at["schema"]))
        if schema is None:
            raise StateError(
                f"the state names a schema of the {self._source.name.shown} that it does not have ({at['schema']})"
            )
        is_planned = at["deletes"] or not self._opened.storage.holds(
            path
        )  # positions come from state, which may be altered
        task = self._planned_task(snapshot, path) if is_planned else self._task(at)
        done, skip = 0, cast(int, at["row"])
        for batch in self._batches(task, schema, path):
            begin, done = done, done + batch.num_rows
            if done <= skip:
                continue
            rows = self._fitted(batch.slice(max(0, skip - begin)), path)
            for first in range(0, rows.num_rows, self._batch_rows):
                part = rows.slice(first, self._batch_rows)
                skip += part.num_rows
                yield ReadRows(part, {**at, "row": skip})

    def _task(self, at: Mapping[str, Any]) -> Any:
        assert self._opened is not None
        manifest = library("pyiceberg.manifest")
        file = manifest.DataFile.from_args(
            content=manifest.DataFileContent.DATA,
            file_path=at["path"],
            file_format=manifest.FileFormat(at["format"]),
            partition=partition_record(cast("Sequence[str | None]", at["partition"]), self._opened.table, at["spec"]),
            record_count=at["rows"],
            file_size_in_bytes=at["size"],
        )
        file.spec_id = at["spec"]
        return library("pyiceberg.table").FileScanTask(file)

    def _planned_task(self, snapshot: int, path: str) -> Any:
        """The file as the snapshot names it, with the files of its deletes."""
        assert self._opened is not None
        if self._tasks[0] != snapshot:
            try:
                tasks = self._opened.table.scan(snapshot_id=snapshot).plan_files()
                self._tasks = (snapshot, {t.file.file_path: t for t in tasks})
            except Exception as error:
                message = f"the {self._source.name.shown} cannot be read: {first_line(error)}"
                raise ConnectorError(message, retryable=may_pass(error)) from error
        task = self._tasks[1].get(path)
        if task is None:
            raise ConnectorError(
                f"{path} is no file of snapshot {snapshot} of the {self._source.name.shown}", retryable=False
            )
        return task

    def _batches(self, task: Any, schema: Any, path: str) -> Iterator[pa.RecordBatch]:
        assert self._opened is not None
        names = self._source.schema.names
        if not names:  # only the number of rows matters: the first column tells it
            names = (schema.fields[0].name,)
        scan = library("pyiceberg.io.pyarrow").ArrowScan(
            self._opened.table.metadata,
            self._opened.table.io,
            schema.select(*names),
            library("pyiceberg.expressions").AlwaysTrue(),
        )
        try:
            yield from scan.to_record_batches([task])
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise ConnectorError(
                    f"{path} cannot be read: {first_line(error)}", retryable=may_pass(error)
                ) from error
            hint = "restore it from a copy, or roll the table back to an earlier snapshot"
            raise DamagedInputError(f"{path} cannot be read: {first_line(error)}", hint=hint) from error
        except Exception as error:
            raise ConnectorError(f"{path} cannot be read: {first_line(error)}", retryable=may_pass(error)) from error

    def _fitted(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        schema = self._source.schema
        if not schema.fields:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        arrays = []
        for field in schema:
            values = batch.column(field.name)
            fit = fit_column(values.type, field.type)
            try:
                arrays.append(values if fit is None else fit(values))
            except pa.ArrowException as error:
                raise DataError(
                    f"{path}: column '{field.name}' holds a value that is no {field.type}: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def create_source(table: TableDefinition) -> IcebergSource:
    """The source of a table definition.

    Raises:
        OptionError: the catalog's options are wrong, or options contradict each other.
    """
    options = table.options
    follows = options.flag("streaming")
    travels = [n for n in _TRAVELS if options.get(n) is not None]
    if len(travels) > 1:
        raise OptionError(travels[1], f"{travels[0]} and {travels[1]} exclude each other", hint="leave one out")
    if follows and travels:
        raise OptionError(
            travels[0],
            f"{travels[0]} reads one snapshot, and streaming = true follows the table",
            hint="use starting-strategy",
        )
    strategy = options.text("starting-strategy")
    for name in ("start-snapshot-id", "start-snapshot-timestamp"):
        if options.get(name) is not None and not (follows and STRATEGIES[strategy] == name):
            fitting = next(s for s, needed in STRATEGIES.items() if needed == name)
            raise OptionError(name, f"{name} needs streaming = true and starting-strategy = {fitting}")
    needed = STRATEGIES[strategy]
    if follows and needed and options.get(needed) is None:
        raise OptionError(needed, f"starting-strategy = {strategy} needs option '{needed}'")
    for name in ("as-of-timestamp", "start-snapshot-timestamp"):
        instant_option(options, name)
    return IcebergSource(
        name=table_name(options, table.name),
        schema=table.schema,
        declared=table.declared or table.schema,
        options=options,
        filters=table.filters,
    )
