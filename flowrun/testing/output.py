"""An output for tests: keeps what an operator sends, in order, and checks the contract on the way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flowrun.api.operator import OutputTag
from flowrun.core.elements import (
    MIN_TIMESTAMP,
    LatencyMarker,
    RecordBatch,
    RowKind,
    Watermark,
    WatermarkStatus,
)
from flowrun.core.record import record


@record
class SideBatch:
    """Rows sent to a side output."""

    tag: OutputTag
    batch: RecordBatch


Emitted = RecordBatch | SideBatch | Watermark | WatermarkStatus | LatencyMarker


class ContractViolationError(AssertionError):
    """An operator broke the operator contract; says how."""


def rows_of(columns: pa.RecordBatch | pa.Table) -> list[tuple[Any, ...]]:
    """Rows as tuples of Python values.

    >>> rows_of(pa.record_batch({"id": [1, 2], "name": ["a", None]}))
    [(1, 'a'), (2, None)]
    """
    if columns.num_columns == 0:
        return [()] * columns.num_rows
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))


class CollectedOutput:
    """An `Output` that keeps everything in `elements`, in order; empty batches are dropped.

    Raises `ContractViolationError` for a watermark that does not advance, for timestamps or row kinds that do not fit their
    rows, and for anything sent while `closed_for` says why nothing may be sent.
    """

    def __init__(self) -> None:
        self.elements: list[Emitted] = []
        self.closed_for: str | None = None
        self._watermark = MIN_TIMESTAMP

    def emit(self, batch: RecordBatch) -> None:
        """Keep rows of the main output."""
        self._check_batch(batch)
        if batch.num_rows:
            self.elements.append(batch)

    def emit_side(self, tag: OutputTag, batch: RecordBatch) -> None:
        """Keep rows of a side output."""
        self._check_batch(batch)
        if batch.columns.schema.names != list(tag.schema.names):
            raise ContractViolationError(
                f"side output '{tag.name}' has the columns {list(tag.schema.names)}, got {batch.columns.schema.names}"
            )
        if batch.num_rows:
            self.elements.append(SideBatch(tag, batch))

    def emit_watermark(self, watermark: Watermark) -> None:
        """Keep a watermark; it must be above the last one."""
        self._check_open()
        if watermark.timestamp <= self._watermark:
            raise ContractViolationError(f"watermark {watermark.timestamp} does not advance from {self._watermark}")
        self._watermark = watermark.timestamp
        self.elements.append(watermark)

    def emit_status(self, status: WatermarkStatus) -> None:
        """Keep an idleness change."""
        self._check_open()
        self.elements.append(status)

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Keep a latency marker."""
        self._check_open()
        self.elements.append(marker)

    def rows(self) -> list[tuple[Any, ...]]:
        """Rows of the main output, in order."""
        return [row for e in self.elements if isinstance(e, RecordBatch) for row in rows_of(e.columns)]

    def changes(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Rows of the main output with their kinds: +I, -U, +U or -D."""
        return [
            (RowKind(kind).symbol, row)
            for e in self.elements
            if isinstance(e, RecordBatch)
            for kind, row in zip(_kinds_of(e), rows_of(e.columns), strict=True)
        ]

    def timestamps(self) -> list[int | None]:
        """Event times (ms) of the rows of the main output."""
        return [t for e in self.elements if isinstance(e, RecordBatch) for t in _timestamps_of(e)]

    def side_rows(self, tag: OutputTag | str) -> list[tuple[Any, ...]]:
        """Rows of one side output, in order."""
        name = tag if isinstance(tag, str) else tag.name
        return [
            row
            for e in self.elements
            if isinstance(e, SideBatch) and e.tag.name == name
            for row in rows_of(e.batch.columns)
        ]

    def watermarks(self) -> list[int]:
        """Timestamps of the watermarks, in order."""
        return [e.timestamp for e in self.elements if isinstance(e, Watermark)]

    def statuses(self) -> list[WatermarkStatus]:
        """Idleness changes, in order."""
        return [e for e in self.elements if isinstance(e, WatermarkStatus)]

    def log(self) -> list[object]:
        """Everything in order: a tuple a row of the main output, `(tag, row)` a side row, other elements as they are."""
        entries: list[object] = []
        for element in self.elements:
            if isinstance(element, RecordBatch):
                entries.extend(rows_of(element.columns))
            elif isinstance(element, SideBatch):
                entries.extend((element.tag.name, row) for row in rows_of(element.batch.columns))
            else:
                entries.append(element)
        return entries

    def clear(self) -> None:
        """Forget what was kept so far; the watermark still may not go back."""
        self.elements.clear()

    def _check_open(self) -> None:
        if self.closed_for is not None:
            raise ContractViolationError(f"an operator must not emit {self.closed_for}")

    def _check_batch(self, batch: RecordBatch) -> None:
        self._check_open()
        if batch.timestamps is not None:
            if len(batch.timestamps) != batch.num_rows or batch.timestamps.null_count:
                raise ContractViolationError(
                    f"{batch.num_rows} rows with {len(batch.timestamps)} timestamps, {batch.timestamps.null_count} of them NULL"
                )
            if batch.timestamps.type != pa.int64():
                raise ContractViolationError(f"timestamps are int64 ms, got {batch.timestamps.type}")
        if batch.row_kinds is not None and (len(batch.row_kinds) != batch.num_rows or batch.row_kinds.null_count):
            raise ContractViolationError(f"{batch.num_rows} rows with {len(batch.row_kinds)} row kinds")


def _kinds_of(batch: RecordBatch) -> list[int]:
    return [int(RowKind.INSERT)] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()


def _timestamps_of(batch: RecordBatch) -> list[int | None]:
    return [None] * batch.num_rows if batch.timestamps is None else batch.timestamps.to_pylist()
