"""Commits to a Delta table. A writer is an application of Delta's transaction protocol, and the number of its committable the version."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import pyarrow as pa

from flowrun.api.refusals import retryable_io
from flowrun.connectors.delta.table import DeltaFolder, client, delta_arrow, in_one_line
from flowrun.connectors.lake.changes import OPERATION, read_changes
from flowrun.connectors.lake.committables import Handed
from flowrun.connectors.lake.committer import ConflictError
from flowrun.connectors.lake.storage import TableStorage
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, mapping, members, optional, text
from flowrun.errors import ConnectorError, SetupError, StateError

_ROWS: Shape = members({"path": text, "size": integer(), "partition": mapping(optional(text)), "stats": text})


@record
class OpenDeltaVersion:
    """Opens the newest version of a table for a committer.

    Attributes:
        open_folder: opens the table; raises SetupError if it is not there.
        create: creates it.
        schema: the columns of the rows.
        keys: those of the primary key.
    """

    open_folder: Callable[[], DeltaFolder]
    create: Callable[[], None]
    schema: Schema
    keys: tuple[str, ...]

    def __call__(self) -> DeltaVersion:
        """The newest version; the table is created if it is not there."""
        try:
            folder = self.open_folder()
        except SetupError:
            self.create()
            folder = self.open_folder()
        return DeltaVersion(folder, self.schema, self.keys)


class DeltaVersion:
    """A Delta table as it was when it was opened.

    Args:
        folder: the table.
        schema: the columns of the rows that a sink writes.
        keys: those of the primary key.
    """

    def __init__(self, folder: DeltaFolder, schema: Schema, keys: tuple[str, ...]) -> None:
        self._folder = folder
        self._table = folder.table
        self._schema = schema
        self._keys = keys

    @property
    def storage(self) -> TableStorage:
        """The folder of the table."""
        return self._folder.storage

    def is_committed(self, given: Handed) -> bool:
        """Whether the log names the committable, or a later one of its writer."""
        return self.holds_sequence(given.writer, given.sequence, given.written_ms)

    def holds_sequence(self, writer: str, sequence: int, since_ms: int) -> bool:
        """Whether the log names this number of a writer, or a higher one."""
        known = self._table.transaction_version(_app_id(writer))
        return known is not None and bool(known >= sequence)

    def add(self, given: Sequence[Handed]) -> None:
        """Add files of rows to the table."""
        transaction = client().transaction
        now = int(time.time() * 1000)
        actions = []
        for file in (f for h in given for f in h.files):
            try:
                _ROWS(file, "files")
            except (ValueError, StateError) as error:
                raise StateError(f"the state describes a data file of a Delta table wrongly: {error}") from error
            values = cast("dict[str, str | None]", file["partition"])
            actions.append(transaction.AddAction(file["path"], file["size"], values, now, True, file["stats"]))
        self._write(actions, given)

    def live(self, paths: Collection[str]) -> set[str]:
        """Those of the data files that are part of the table."""
        return set(_adds(self._table)) & set(paths)

    def remove(self, paths: Collection[str]) -> None:
        """Take data files out of the table."""
        transaction = client().transaction
        now = int(time.time() * 1000)
        known = _adds(self._table)
        actions = []
        for path in sorted(paths):
            values = {n: None if v is None else str(v) for n, v in known[path].items()}
            actions.append(transaction.RemoveAction(path, True, now, None, values or None))
        self._write(actions, ())

    def _write(self, actions: list[Any], given: Sequence[Handed]) -> None:
        schema, partitions = self._table.schema(), list(self._folder.partitions)
        self._attempt(
            lambda: self._table.create_write_transaction(
                actions, "append", schema, partitions, commit_properties=_properties(given)
            )
        )

    def apply(self, given: Sequence[Handed]) -> None:
        """Apply changes by key: a MERGE with the last change of each key."""
        changes = read_changes(self.storage, given, self._keys)
        if changes is None:
            self._write([], given)
            return
        names = self._schema.names
        fields = [pa.field(f.name, delta_arrow(f.type)) for f in self._schema]
        arrays = [changes.column(f.name).cast(f.type) for f in fields]
        source = pa.Table.from_arrays(
            [*arrays, changes.column(OPERATION)], schema=pa.schema([*fields, pa.field(OPERATION, pa.bool_())])
        )
        condition = " AND ".join(f"target.{_quoted(k)} = source.{_quoted(k)}" for k in self._keys)
        values = {_quoted(n): f"source.{_quoted(n)}" for n in names}
        is_delete = f"source.{_quoted(OPERATION)}"

        def merge() -> None:
            merger = self._table.merge(
                source,
                condition,
                source_alias="source",
                target_alias="target",
                commit_properties=_properties(given),
            )
            merger = merger.when_matched_delete(is_delete).when_matched_update(values, f"NOT {is_delete}")
            merger.when_not_matched_insert(values, f"NOT {is_delete}").execute()

        self._attempt(merge)

    def _attempt(self, act: Callable[[], None]) -> None:
        errors = client().exceptions
        try:
            act()
        except errors.CommitFailedError as error:
            raise ConflictError(in_one_line(error)) from error
        except Exception as error:
            raise ConnectorError(
                f"the Delta table at {self._folder.location.path.text} cannot be committed to: {in_one_line(error)}",
                retryable=retryable_io(error, True),
            ) from error


def _adds(table: Any) -> dict[str, dict[str, Any]]:
    """Path of each data file of a table → its partition values."""
    from urllib.parse import unquote

    actions = pa.table(table.get_add_actions(flatten=True))
    partitions = [n for n in actions.column_names if n.startswith("partition.")]
    rows = actions.select(["path", *partitions]).to_pylist()
    return {unquote(r["path"]): {n.removeprefix("partition."): r[n] for n in partitions} for r in rows}


def _properties(given: Sequence[Handed]) -> Any:
    """The properties of a commit: who committed what, for Delta's protocol and for people."""
    library = client()
    now = int(time.time() * 1000)
    highest: dict[str, int] = {}
    for one in given:
        highest[one.writer] = max(one.sequence, highest.get(one.writer, 0))
    return library.CommitProperties(
        app_transactions=[library.Transaction(_app_id(w), s, now) for w, s in sorted(highest.items())],
        custom_metadata={"flowrun.committables": ",".join(sorted(h.commit_id for h in given))} if given else None,
        max_commit_retries=None,
    )


def _app_id(writer: str) -> str:
    return f"flowrun-{writer}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
