"""Commits to an Iceberg table. The summary of each snapshot says which committable of which writer it holds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.iceberg.catalog import first_line, library, may_pass
from flowrun.connectors.iceberg.data_files import IcebergFiles, data_file
from flowrun.connectors.iceberg.table import IcebergTable
from flowrun.connectors.lake.changes import has_key, read_changes, upserts_and_deletes
from flowrun.connectors.lake.committables import Handed, file_name
from flowrun.connectors.lake.committer import ConflictError
from flowrun.connectors.lake.storage import TableStorage
from flowrun.connectors.lake.writer import OpenFile
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, FlowrunError, SetupError

SUMMARY = "flowrun.committables"
"""The property of a snapshot's summary: JSON, each writer with the number of its committable."""

_CLOCK_SKEW_MS = 3_600_000
_FEW_KEYS = 200


@record
class OpenIcebergVersion:
    """Opens a table for a committer.

    Attributes:
        open_table: opens the table; raises SetupError if it is not there.
        create: creates it.
        schema: the columns of the rows.
        keys: those of the primary key.
        compression: of files that a commit writes.
    """

    open_table: Callable[[], IcebergTable]
    create: Callable[[], None]
    schema: Schema
    keys: tuple[str, ...]
    compression: str

    def __call__(self) -> IcebergVersion:
        """The table as it is now; it is created if it is not there."""
        try:
            opened = self.open_table()
        except SetupError:
            self.create()
            opened = self.open_table()
        return IcebergVersion(opened, self.schema, self.keys, self.compression)


class IcebergVersion:
    """An Iceberg table as it was when it was opened.

    Args:
        opened: the table.
        schema: the columns of the rows that a sink writes.
        keys: those of the primary key.
        compression: of files that a commit writes.
    """

    def __init__(self, opened: IcebergTable, schema: Schema, keys: tuple[str, ...], compression: str) -> None:
        self._opened = opened
        self._table = opened.table
        self._schema = schema
        self._keys = keys
        self._compression = compression
        self._ancestors = list(_ancestors(self._table))
        self._committed = _committed(self._ancestors)

    @property
    def storage(self) -> TableStorage:
        """The folder of the table."""
        return self._opened.storage

    def holds_sequence(self, writer: str, sequence: int, since_ms: int) -> bool | None:
        """Whether a snapshot names this number of a writer, or a higher one; None: those that could were removed."""
        if self._committed.get(writer, 0) >= sequence:
            return True
        if not self._ancestors:
            return False
        oldest = self._ancestors[-1]
        # Who removes snapshots may also remove the id of a parent that is gone: then the sequence number tells.
        is_first = oldest.parent_snapshot_id is None and (oldest.sequence_number or 0) <= 1
        is_whole = is_first or oldest.timestamp_ms <= since_ms - _CLOCK_SKEW_MS
        return False if is_whole else None

    def is_committed(self, given: Handed) -> bool:
        """Whether a snapshot names the committable. If those that could were removed, its files tell."""
        found = self.holds_sequence(given.writer, given.sequence, given.written_ms)
        if found is not None:
            return found
        paths = {str(f["path"]) for f in given.files}
        if self.live(paths) or not any(map(self.storage.exists, paths)):
            return True
        raise ConnectorError(
            f"whether {sorted(paths)[0]} was committed to the {self._opened.name.shown} is not known: the snapshots of that time have been "
            "removed from the table",
            retryable=False,
            hint="go on from a newer checkpoint or savepoint; or, if you know that it was not committed, begin anew",
        )

    def add(self, given: Sequence[Handed]) -> None:
        """Add files of rows to the table."""
        current = self._table.spec().spec_id
        described = [f for h in given for f in h.files]
        files = [data_file(f, self._table) for f in described]
        same = [f for f in files if f.spec_id == current]
        others = [
            f for f in files if f.spec_id != current
        ]  # the table was partitioned in another way since they were written
        rows = (batch for f in others for batch in self._rows_of(f))
        writer = _rewriter(given)
        self._commit(given, [*same, *self._write(rows, writer)], (), rewriter=writer if others else "")

    def apply(self, given: Sequence[Handed]) -> None:
        """Apply changes by key: files that hold one of the keys are written anew without their rows, the new rows are added."""
        changes = read_changes(self.storage, given, self._keys)
        if changes is None:
            self._commit(given, [], ())
            return
        rows, removes = upserts_and_deletes(changes)
        replaced: list[Any] = []
        writer = _rewriter(given)

        def kept_and_new() -> Iterator[pa.RecordBatch]:
            for task in self._candidates(rows):
                found = self._table_of(task)
                hit = has_key(found, rows, self._keys)
                if hit.any():
                    replaced.append(task.file)
                    yield from found.filter(pa.array(~hit)).to_batches()
            yield rows.filter(pa.array(~removes))

        new = self._write(kept_and_new(), writer)
        self._commit(given, new, replaced, rewriter=writer)

    def _candidates(self, rows: pa.RecordBatch) -> list[Any]:
        """The files that may hold one of the keys."""
        if not self._ancestors:
            return []
        filters = library("pyiceberg.expressions")
        condition = filters.AlwaysTrue()
        for name in self._keys:
            values = rows.column(name)
            if pa.types.is_floating(values.type) or pa.types.is_boolean(values.type) or not len(values):
                continue
            if len(self._keys) == 1 and len(values) <= _FEW_KEYS and not pa.types.is_temporal(values.type):
                return self._planned(filters.In(name, set(values.to_pylist())))
            bounds = pc.min_max(_plain(values)).as_py()
            between = filters.And(
                filters.GreaterThanOrEqual(name, bounds["min"]), filters.LessThanOrEqual(name, bounds["max"])
            )
            condition = filters.And(condition, between)
        return self._planned(condition)

    def _planned(self, condition: Any) -> list[Any]:
        try:
            return list(self._table.scan(row_filter=condition).plan_files())
        except Exception as error:
            raise ConnectorError(
                f"the {self._opened.name.shown} cannot be read: {first_line(error)}", retryable=may_pass(error)
            ) from error

    def _rows_of(self, file: Any) -> Iterator[pa.RecordBatch]:
        task = library("pyiceberg.table").FileScanTask(file)
        yield from self._table_of(task).to_batches()

    def _table_of(self, task: Any) -> pa.Table:
        scan = library("pyiceberg.io.pyarrow").ArrowScan(
            self._table.metadata, self._table.io, self._table.schema(), library("pyiceberg.expressions").AlwaysTrue()
        )
        try:
            return scan.to_table([task])
        except Exception as error:
            raise ConnectorError(
                f"{task.file.file_path} cannot be read: {first_line(error)}", retryable=may_pass(error)
            ) from error

    def _write(self, batches: Iterator[pa.RecordBatch], writer: str) -> list[Any]:
        """Write rows to files of the current partitioning, named by `writer`; gives the client library's `DataFile`s."""
        files = IcebergFiles(self._opened)
        opened: dict[str, OpenFile] = {}
        made = []
        try:
            for batch in batches:
                for partition, rows in files.split(batch) if batch.num_rows else ():
                    if partition not in opened:
                        location = files.location(partition, file_name(writer, 1, len(opened)))
                        opened[partition] = OpenFile(self.storage, location, files.arrow, self._compression)
                    opened[partition].write(rows)
            for partition, file in opened.items():
                size, metadata = file.finish()
                made.append(data_file(files.describe(partition, file.location, size, metadata), self._table))
        except BaseException:
            for file in opened.values():
                file.abandon()
            raise
        self.storage.settle()
        return made

    def live(self, paths: Collection[str]) -> set[str]:
        """Those of the data files that are part of the table."""
        return {f.file_path for f in self._files(paths)}

    def _files(self, paths: Collection[str]) -> list[Any]:
        if not self._ancestors:
            return []
        tasks = self._planned(library("pyiceberg.expressions").AlwaysTrue())
        return [task.file for task in tasks if task.file.file_path in paths]

    def remove(self, paths: Collection[str]) -> None:
        """Take data files out of the table."""
        self._commit((), [], self._files(paths))

    def _commit(
        self, given: Sequence[Handed], added: Sequence[Any], removed: Sequence[Any], rewriter: str = ""
    ) -> None:
        """One snapshot with its record. It is tried once: before another try somebody has to look whether it is there.

        `rewriter` names the files that this commit has written itself; if it fails they go, or are found as those of a killed writer.
        """
        errors = library("pyiceberg.exceptions")
        table = _for_one_commit(self._table)
        try:
            with table.transaction() as transaction:
                update = transaction.update_snapshot(snapshot_properties=_summary(given, rewriter))
                with update.overwrite() if removed else self._append(update) as producer:
                    for file in added:
                        producer.append_data_file(file)
                    for file in removed:
                        producer.delete_data_file(file)
        except errors.CommitFailedException as error:
            for file in added:
                if rewriter and rewriter in file.file_path:
                    self.storage.discard(file.file_path)
            raise ConflictError(first_line(error)) from error
        except (
            errors.CommitStateUnknownException,
            errors.ServerError,
            errors.ServiceUnavailableError,
            errors.TooManyRequestsError,
            OSError,
        ) as error:
            raise ConflictError(first_line(error)) from error
        except FlowrunError:
            raise
        except Exception as error:
            if type(error).__name__ == "OperationalError":  # the catalog's database is locked, or did not answer
                raise ConflictError(first_line(error)) from error
            raise ConnectorError(
                f"the {self._opened.name.shown} cannot be committed to: {first_line(error)}", retryable=may_pass(error)
            ) from error

    def _append(self, update: Any) -> Any:
        """An append. Small manifests are merged, as in Iceberg's other libraries, unless the table says otherwise."""
        merges = self._table.properties.get("commit.manifest-merge.enabled", "true").lower() == "true"
        return update.merge_append() if merges else update.fast_append()


def _rewriter(given: Sequence[Handed]) -> str:
    """The name of a commit as a writer: of the owner of what it commits, and like no other."""
    return f"{given[0].writer.partition('-')[0]}-{uuid.uuid4().hex[:12]}-0"


def _plain(values: pa.Array) -> pa.Array:
    """Key values in a form that Iceberg's literals take: points in time as microseconds, dates as days."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    if pa.types.is_time(values.type):
        return values.cast(pa.time64("us")).view(pa.int64())
    return values


def _ancestors(table: Any) -> Iterator[Any]:
    """The snapshots of the main branch, the newest first, as far back as the table knows them."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _committed(snapshots: Sequence[Any]) -> dict[str, int]:
    """The highest number of each writer that the snapshots name."""
    found: dict[str, int] = {}
    for snapshot in snapshots:
        told = None if snapshot.summary is None else snapshot.summary.additional_properties.get(SUMMARY)
        for writer, sequence in (json.loads(told) if told else {}).items():
            found[writer] = max(sequence, found.get(writer, 0))
    return found


def _summary(given: Sequence[Handed], rewriter: str) -> dict[str, str]:
    highest: dict[str, int] = {rewriter: 1} if rewriter else {}
    for one in given:
        highest[one.writer] = max(one.sequence, highest.get(one.writer, 0))
    return {SUMMARY: json.dumps(highest, sort_keys=True)} if highest else {}


def _for_one_commit(table: Any) -> Any:
    """The table, as the client library is to see it while it makes one commit.

    Its own retries are off, as it would not look whether the commit is there. Of the snapshots it knows the newest only: it copies all that
    it knows many times for each commit, and the catalog applies the commit to what it knows itself.
    """
    newest = table.current_snapshot()
    changed = {
        "properties": {**table.metadata.properties, "commit.retry.num-retries": "0"},
        "snapshots": [] if newest is None else [newest],
        "snapshot_log": [],
        "metadata_log": [],
    }
    metadata = table.metadata.model_copy(update=changed)
    return type(table)(table.name(), metadata, table.metadata_location, table.io, table.catalog)
