"""Reads lake tables: an enumerator that finds the files of a version, and of the versions that follow it, and readers of these files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import pyarrow as pa

from flowrun.api.operator import InputStatus
from flowrun.api.source import JsonValue, ReaderContext, SourceOutput, Split
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record


@record
class Planned:
    """What is to be read.

    Attributes:
        version: up to which version (Iceberg: snapshot) of the table; None: it has none yet.
        splits: the files, in order.
    """

    version: int | None
    splits: tuple[Split, ...]


class TablePlan(Protocol):
    """Finds what is to be read. All methods block on I/O, and raise ConnectorError, or SetupError for a table that does not fit."""

    @property
    def interval_ms(self) -> int | None:
        """How often to look for new versions; None: never."""
        ...

    def first(self) -> Planned:
        """What is read first."""
        ...

    def after(self, version: int | None) -> Planned:
        """What came into the table after a version."""
        ...


class LakeEnumerator:
    """Hands out the files of a table in the order of its versions; splits that came back are handed out first.

    Args:
        plan: finds the files.
        restored: state of an earlier enumerator.
    """

    def __init__(self, plan: TablePlan, restored: JsonValue = None) -> None:
        self._plan = plan
        self._pending: deque[Split] = deque()
        self._version: int | None = None
        self._restored = restored is not None
        if restored is not None:
            kept = cast("dict[str, JsonValue]", restored)
            pending = cast("list[dict[str, JsonValue]]", kept["pending"])
            self._pending.extend(
                Split(cast(str, p["id"]), cast("dict[str, JsonValue]", p["position"])) for p in pending
            )
            self._version = cast("int | None", kept["version"])

    def start(self) -> None:
        """Find the files of the version that is read first."""
        if not self._restored:
            self._take(self._plan.first())

    def _take(self, planned: Planned) -> None:
        self._version = planned.version
        self._pending.extend(planned.splits)

    def next_split(self, subtask: int) -> Split | None:
        """The first split that was not handed out; None: there is none left."""
        return self._pending.popleft() if self._pending else None

    @property
    def exhausted(self) -> bool:
        """Whether no split is left and the table is not followed."""
        return not self._pending and self._plan.interval_ms is None

    @property
    def discovery_interval_ms(self) -> int | None:
        """How often to look for new versions; None: never."""
        return self._plan.interval_ms

    def discover(self) -> None:
        """Find the files that came with new versions."""
        self._take(self._plan.after(self._version))

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take splits that are to be handed out first."""
        self._pending.extendleft(reversed(splits))

    def snapshot(self) -> JsonValue:
        """The splits that were not handed out, and the version up to which files were found."""
        pending: list[JsonValue] = [{"id": s.split_id, "position": dict(s.position)} for s in self._pending]
        return {"pending": pending, "version": self._version}

    def close(self) -> None:
        """Nothing to release."""


@record
class ReadRows:
    """Rows of a file, and the position behind them."""

    columns: pa.RecordBatch
    position: dict[str, Any]


class FileOpener(Protocol):
    """Reads files of a table."""

    def rows(self, split: Split) -> Iterator[ReadRows]:
        """The rows of a split from its position on, in an order that is always the same; it blocks on I/O.

        Raises:
            ConnectorError: the file cannot be read.
            DataError: a column has another type in the file.
        """
        ...


class LakeReader:
    """Reads the files of one subtask one after the other."""

    def __init__(self, opener: FileOpener, context: ReaderContext) -> None:
        self._opener = opener
        self._context = context
        self._splits: deque[Split] = deque()
        self._rows: Iterator[ReadRows] | None = None
        self._no_more = False

    def start(self) -> None:
        """Ask for a split unless some were restored."""
        if not self._splits:
            self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Emit one batch of the current split."""
        if not self._splits:
            return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE
        split = self._splits[0]
        if self._rows is None:
            self._rows = self._opener.rows(split)
        found = next(self._rows, None)
        if found is None:
            self._rows = None
            self._splits.popleft()
            if not self._splits:
                self._context.request_split()
        else:
            self._splits[0] = Split(split.split_id, found.position)
            if found.columns.num_rows:
                output.emit(RecordBatch(found.columns), split.split_id)
        return InputStatus.MORE_AVAILABLE

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take splits to read."""
        self._splits.extend(splits)

    def notify_no_more_splits(self) -> None:
        """Take note that the enumerator has no more splits."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """The splits that were not read to their end; the first one with the position behind the rows that were emitted."""
        return tuple(self._splits)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing to acknowledge."""

    def close(self) -> None:
        """Close the file."""
        self._rows = None
