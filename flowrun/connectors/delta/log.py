"""The log of a Delta table: which files a version added and removed, and when it was committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from flowrun.connectors.delta.table import DeltaFolder
from flowrun.core.record import record
from flowrun.errors import ConnectorError, SetupError


@record
class AddedFile:
    """A data file that a version added.

    Attributes:
        path: relative to the table's folder.
        partition: text of each partition column's value; None is NULL.
        has_deletes: whether some of its rows are deleted by a deletion vector.
        lows, highs: bounds of columns, as far as they are known.
        nulls: number of NULLs of columns, as far as it is known.
        rows: number of rows, if it is known.
    """

    path: str
    partition: Mapping[str, str | None]
    has_deletes: bool
    lows: Mapping[str, Any]
    highs: Mapping[str, Any]
    nulls: Mapping[str, int]
    rows: int | None


@record
class Changes:
    """What a version changed: the files whose rows are new, and whether rows went away."""

    added: tuple[AddedFile, ...]
    removes: bool


def changes_of(folder: DeltaFolder, version: int) -> Changes:
    """What a version of the table changed; files that were only rewritten, as by OPTIMIZE, are not among it. It blocks on I/O.

    Raises:
        ConnectorError: the version is not in the log any more.
    """
    path = f"_delta_log/{version:020d}.json"
    if not folder.storage.exists(path):
        raise ConnectorError(
            f"version {version} is not in the log of the Delta table at {folder.location.path.text} any more: it was cleaned up before "
            "it was read",
            retryable=False,
            hint="begin anew with the table as it is now, or keep the log longer (delta.logRetentionDuration)",
        )
    with folder.storage.open(path) as file:
        actions = [orjson.loads(line) for line in file.read().splitlines() if line.strip()]
    adds = [a["add"] for a in actions if "add" in a and a["add"].get("dataChange", True)]
    removes = any("remove" in a and a["remove"].get("dataChange", True) for a in actions)
    return Changes(tuple(map(_added, adds)), removes)


def _added(add: Mapping[str, Any]) -> AddedFile:
    stats = orjson.loads(add["stats"]) if add.get("stats") else {}
    return AddedFile(
        unquote(add["path"]),
        dict(add.get("partitionValues") or {}),
        add.get("deletionVector") is not None,
        {},
        {},
        {},
        stats.get("numRecords"),
    )


def files_of(folder: DeltaFolder) -> Iterator[AddedFile]:
    """The files of the table at its version, sorted by path. It blocks on I/O."""
    texts = _partition_texts(folder)
    deleted = _with_deletes(folder)
    actions = pa.table(folder.table.get_add_actions(flatten=True))
    for given in sorted(actions.to_pylist(), key=lambda a: str(a["path"])):
        path = unquote(given["path"])
        yield AddedFile(
            path,
            texts.get(path, {}),
            path in deleted,
            _under("min.", given),
            _under("max.", given),
            _under("null_count.", given),
            given.get("num_records"),
        )


def _under(prefix: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {n.removeprefix(prefix): v for n, v in given.items() if n.startswith(prefix) and v is not None}


def _partition_texts(folder: DeltaFolder) -> dict[str, dict[str, str | None]]:
    """Path of each file → the text of its partition values."""
    if not folder.partitions:
        return {}
    actions = pa.table(folder.table.get_add_actions(flatten=True))
    columns = {}
    for name in folder.partitions:
        values = actions.column(f"partition.{name}")
        columns[name] = [None if v is None else _text(v) for v in values.to_pylist()]
    paths = [unquote(p) for p in actions.column("path").to_pylist()]
    return {path: {n: columns[n][i] for n in columns} for i, path in enumerate(paths)}


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _with_deletes(folder: DeltaFolder) -> frozenset[str]:
    """The paths of files that have deletion vectors."""
    if "deletionVectors" not in (folder.table.protocol().reader_features or ()):
        return frozenset()
    return frozenset(kept_rows(folder))


def kept_rows(folder: DeltaFolder) -> dict[str, pa.Array]:
    """Path of each file that has a deletion vector → which of its rows are there (BOOLEAN; rows behind its end are). It blocks on I/O."""
    base = folder.table.table_uri.rstrip("/") + "/"
    found: dict[str, pa.Array] = {}
    for batch in pa.table(folder.table.deletion_vectors()).to_batches():
        kept = batch.column("selection_vector")
        for i, uri in enumerate(batch.column("filepath").to_pylist()):
            found[unquote(str(uri).removeprefix(base))] = kept[i].values
    return found


def version_at(folder: DeltaFolder, time_ms: int, *, after: bool) -> int:
    """The newest version that was committed by a time; with `after`, the oldest one that was committed then or later.

    Raises:
        SetupError: there is none.
    """
    times = sorted((int(h["version"]), int(h["timestamp"])) for h in folder.table.history() if "timestamp" in h)
    if after:
        later = [version for version, committed_ms in times if committed_ms >= time_ms]
        if later:
            return later[0]
        raise SetupError(
            f"no version of the Delta table at {folder.location.path.text} was committed at that time or later"
        )
    earlier = [version for version, committed_ms in times if committed_ms <= time_ms]
    if not earlier:
        raise SetupError(
            f"the Delta table at {folder.location.path.text} has no version of that time: its log begins later",
            hint="name a later time, or a version (versionAsOf)",
        )
    return earlier[-1]
