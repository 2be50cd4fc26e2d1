"""Finding files and cutting them into splits, once a job."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from flowrun.api.format import RecordFormat
from flowrun.api.source import JsonValue, Split
from flowrun.connectors.filesystem.locations import (
    NO_FILE_HINT,
    FoundFile,
    compression_of,
    is_allowed_to_miss,
    list_files,
    open_error,
)
from flowrun.connectors.filesystem.partitions import may_hold_rows
from flowrun.errors import ConnectorError, StateError

if TYPE_CHECKING:
    from flowrun.connectors.filesystem.source import FileSource

_log = logging.getLogger(__name__)


def found_files(source: FileSource) -> list[FoundFile]:
    """The files that a source means, sorted by path. Blocking; raises ConnectorError unless it watches for them."""
    pattern = cast("str | None", source.options.get("source.path.regex-pattern"))
    return list_files(source.location, pattern, may_be_missing=source.monitor_interval_ms is not None)


def no_files(source: FileSource) -> None:
    """Say that there is nothing to read: in the log for a folder. Raises ConnectorError for a glob."""
    location = source.location
    if is_allowed_to_miss(location):
        return
    if location.is_glob:
        raise ConnectorError(f"path '{location.text}' matches no file", hint=NO_FILE_HINT)
    _log.warning("path '%s' is a folder without files: nothing is read", location.text)


def is_wanted(source: FileSource, file: FoundFile) -> bool:
    """Whether rows of the file may pass the filters on partition columns."""
    if not source.partition_filters:
        return True
    _, base = source.location.open()
    default_name = source.options.text("partition.default-name")
    return may_hold_rows(file.path, base, source.partitions, default_name, source.partition_filters)


class FileEnumerator:
    """Hands out splits in order of path and offset; splits that came back go first.

    In watched mode it remembers the paths it has seen: a file is read once, as it is when it is found. Write files under a hidden
    name (`.` or `_` first) and rename them when they are whole, as this connector's sink does.
    """

    def __init__(self, source: FileSource, restored: JsonValue = None) -> None:
        self._source = source
        self._pending: deque[Split] = deque()
        self._seen: set[str] = set()
        self._restored = restored is not None
        if restored is not None:
            kept = cast(dict[str, JsonValue], restored)
            pending = cast(list[dict[str, JsonValue]], kept["pending"])
            self._pending.extend(Split(cast(str, p["id"]), cast(dict[str, JsonValue], p["position"])) for p in pending)
            seen = cast("list[str] | None", kept["seen"])
            if seen is None and self._watching:
                raise StateError(
                    f"path '{source.location.text}': the state was made without source.monitor-interval and does not say which files "
                    "were read to their end, so that watching would read them again",
                    hint="leave the option out, or give the source another uid to start it anew",
                )
            self._seen.update(seen or ())

    @property
    def _watching(self) -> bool:
        return self._source.monitor_interval_ms is not None

    def start(self) -> None:
        """List the files. A folder without files is empty input, and said so in the log.

        Raises:
            ConnectorError: they cannot be listed, or a glob matches none (unless watching).
        """
        if self._restored and not self._watching:
            return
        if not self._find_new() and not self._watching:
            no_files(self._source)

    def _find_new(self) -> bool:
        found = found_files(self._source)
        for file in found:
            if file.path not in self._seen and is_wanted(self._source, file):
                self._seen.add(file.path)
                self._pending.extend(self._splits(file))
        return bool(found)

    def _splits(self, file: FoundFile) -> Iterator[Split]:
        used = self._source.format
        size = self._source.options.integer("source.split-size")
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
            filesystem, _ = self._source.location.open()
            try:
                with filesystem.open_input_file(file.path) as opened:
                    parts = used.create_reader(self._source.request).parts(opened, file.path, size)
            except OSError as error:
                raise open_error(file.path, error) from error
            for part in parts:
                yield Split(
                    f"{file.path}@{part.first}", {"path": file.path, "unit": part.first, "row": 0, "stop": part.stop}
                )

    def _may_split(self, file: FoundFile, used: RecordFormat) -> bool:
        if used.changelog:  # readers of two pieces would send the changes of one row out of order
            return False
        return not compression_of(file.path) and used.splittable(self._source.options)

    def next_split(self, subtask: int) -> Split | None:
        """The first split that is left."""
        return self._pending.popleft() if self._pending else None

    @property
    def exhausted(self) -> bool:
        """Whether none is left and no file will be looked for."""
        return not self._pending and not self._watching

    @property
    def discovery_interval_ms(self) -> int | None:
        """The option `source.monitor-interval`."""
        return self._source.monitor_interval_ms

    def discover(self) -> None:
        """Look for files that were not there before."""
        self._find_new()

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Hand these out first."""
        self._pending.extendleft(reversed(splits))

    def snapshot(self) -> JsonValue:
        """Splits that are left, and the paths that are known."""
        return {
            "pending": [{"id": s.split_id, "position": dict(s.position)} for s in self._pending],
            "seen": cast(JsonValue, sorted(self._seen)) if self._watching else None,
        }

    def close(self) -> None:
        """Nothing to release."""
