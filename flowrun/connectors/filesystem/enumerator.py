"""Finds files and cuts them into splits, when a run begins and, if the source watches its folder, again and again."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import cast

from flowrun.api.format import RecordFormat
from flowrun.api.source import JsonValue, Split
from flowrun.connectors.filesystem.partitions import may_hold_rows
from flowrun.connectors.filesystem.scan import FileScan
from flowrun.connectors.filesystem.seen_paths import SeenPaths
from flowrun.connectors.filesystem.table_path import (
    NO_FILE_HINT,
    FoundFile,
    compression_of,
    is_allowed_to_miss,
    list_files,
    open_error,
)
from flowrun.connectors.filesystem.unfinished import damage_of
from flowrun.connectors.formats.damage import DamagedInputError
from flowrun.errors import ConnectorError, StateError

_log = logging.getLogger(__name__)


def found_files(scan: FileScan, *, may_be_missing: bool = False) -> list[FoundFile]:
    """The files that a source reads, sorted by path. It blocks on I/O.

    Args:
        scan: what the source reads.
        may_be_missing: whether a path without files is no error.

    Raises:
        ConnectorError: the files cannot be listed, or the path does not exist although it may not be missing and is not watched.
    """
    pattern = cast("str | None", scan.options.get("source.path.regex-pattern"))
    return list_files(scan.location, pattern, may_be_missing=may_be_missing or scan.monitor_interval_ms is not None)


def no_files(scan: FileScan) -> None:
    """Say in the log that a folder holds no files to read.

    Raises:
        ConnectorError: the path is a glob, which no file matches.
    """
    location = scan.location
    if is_allowed_to_miss(location):
        return
    if location.is_glob:
        raise ConnectorError(f"path '{location.text}' matches no file", retryable=False, hint=NO_FILE_HINT)
    _log.warning("path '%s' is a folder without files: nothing is read", location.text)


def is_wanted(scan: FileScan, file: FoundFile) -> bool:
    """Whether rows of the file may pass the filters on partition columns."""
    if not scan.partition_filters:
        return True
    _, base = scan.location.open()
    default_name = scan.options.text("partition.default-name")
    return may_hold_rows(file.path, base, scan.partitions, default_name, scan.partition_filters)


class FileEnumerator:
    """Hands out splits in the order of path and offset; splits that came back are handed out first.

    It remembers the paths that it has seen: each file is read once. Whoever puts files into a folder that is watched should write them
    under a hidden name (which begins with `.` or `_`) and rename them when they are complete, as this connector's sink does.
    """

    def __init__(self, scan: FileScan, restored: JsonValue = None) -> None:
        self._scan = scan
        self._pending: deque[Split] = deque()
        self._seen: SeenPaths | None = SeenPaths()
        """The paths that were found; None: the restored state does not name them."""
        self._restored = restored is not None
        if restored is not None:
            kept = cast(dict[str, JsonValue], restored)
            pending = cast(list[dict[str, JsonValue]], kept["pending"])
            self._pending.extend(Split(cast(str, p["id"]), cast(dict[str, JsonValue], p["position"])) for p in pending)
            seen = kept["seen"]
            self._seen = None if seen is None else SeenPaths.restore(seen)
            if self._seen is None and self._watching:
                raise StateError(
                    f"path '{scan.location.text}': the state was made by an older version without source.monitor-interval and does not "
                    "say which files were read to their end, so that watching would read them again",
                    hint="leave the option out, or give the source another uid to start it anew",
                )

    @property
    def _watching(self) -> bool:
        return self._scan.monitor_interval_ms is not None

    def start(self) -> None:
        """List the files. A folder without files is empty input, which is said in the log.

        Raises:
            ConnectorError: the files cannot be listed, or a glob that is not watched matches none.
        """
        if self._restored and not self._watching:
            return
        found = found_files(self._scan)
        self._take(found)
        if not found and not self._watching:
            no_files(self._scan)

    def look_again(self) -> list[str]:
        """Make splits of the files that came since the snapshot; gives their paths. Files that were there before may be gone.

        Raises:
            ConnectorError: the files cannot be listed.
        """
        if self._seen is None:
            _log.warning(
                "path '%s': the state was made by an older version and does not say which files were read: those that came since are "
                "not read",
                self._scan.location.text,
            )
            return []
        return self._take(found_files(self._scan, may_be_missing=True))

    def _take(self, found: Sequence[FoundFile]) -> list[str]:
        """Make splits of those files that were not seen before; gives their paths."""
        seen = self._seen
        assert seen is not None
        new = [file for file in found if file.path not in seen and is_wanted(self._scan, file)]
        for file in new:
            self._pending.extend(self._splits(file))
            seen.add(file.path)
        return [file.path for file in new]

    def _splits(self, file: FoundFile) -> Iterator[Split]:
        used = self._scan.format
        size = self._scan.options.integer("source.split-size")
        if isinstance(used, RecordFormat):
            if file.size <= size or not self._may_split(file, used):
                yield Split(file.path, {"path": file.path, "offset": 0, "stop": None, "aligned": True})
                return
            count = max(1, round(file.size / size))
            edges = [file.size * i // count for i in range(count)]
            for i, start in enumerate(edges):
                stop = edges[i + 1] if i + 1 < count else None
                position: dict[str, JsonValue] = {
                    "path": file.path,
                    "offset": start,
                    "stop": stop,
                    "aligned": start == 0,
                }
                yield Split(f"{file.path}@{start}", position)
        elif file.size <= size:
            yield Split(file.path, {"path": file.path, "unit": 0, "row": 0, "stop": None})
        else:
            filesystem, _ = self._scan.location.open()
            try:
                with filesystem.open_input_file(file.path) as opened:
                    parts = used.create_reader(self._scan.request).parts(opened, file.path, size)
            except OSError as error:
                raise open_error(file.path, error) from error
            except DamagedInputError as error:
                raise damage_of(filesystem, file.path, error) from error.__cause__
            for part in parts:
                yield Split(
                    f"{file.path}@{part.first}", {"path": file.path, "unit": part.first, "row": 0, "stop": part.stop}
                )

    def _may_split(self, file: FoundFile, used: RecordFormat) -> bool:
        if used.changelog:  # two readers of one file would send the changes of a row out of order
            return False
        return not compression_of(file.path) and used.splittable(self._scan.options)

    def next_split(self, subtask: int) -> Split | None:
        """The first split that was not handed out; None: there is none left."""
        return self._pending.popleft() if self._pending else None

    @property
    def exhausted(self) -> bool:
        """Whether no split is left and the source does not look for new files."""
        return not self._pending and not self._watching

    @property
    def discovery_interval_ms(self) -> int | None:
        """The value of the option `source.monitor-interval` in ms; None: it was not given."""
        return self._scan.monitor_interval_ms

    def discover(self) -> None:
        """Make splits of files that were not there before."""
        self._take(found_files(self._scan))

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take splits that are to be handed out first."""
        self._pending.extendleft(reversed(splits))

    def snapshot(self) -> JsonValue:
        """The splits that were not handed out, and the paths that were found (None: they are not known)."""
        return {
            "pending": [{"id": s.split_id, "position": dict(s.position)} for s in self._pending],
            "seen": None if self._seen is None else self._seen.snapshot(),
        }

    def close(self) -> None:
        """Nothing to release."""
