"""A reader of rows that the process holds: constant rows, and tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from flowrun.api.operator import InputStatus
from flowrun.api.source import ReaderContext, SourceOutput, Split
from flowrun.core.elements import IDLE, RecordBatch, RowKind, Watermark, WatermarkStatus
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, members

BATCH, ROW = "batch", "row"
"""Members of a split's position: the batch (or what stands between batches) to go on with, and its first row that was not given; both
0 if they are left out."""

HeldElement: TypeAlias = RecordBatch | Watermark | WatermarkStatus
"""Rows, or between them how far the event time of the split has come, or that nothing is expected from it for now."""


def held_rows_position(shapes: Mapping[str, Shape]) -> Shape:
    """The shape of positions in splits that are named by these members."""
    return members(shapes, later={BATCH: integer(), ROW: integer()})


class HeldRowsReader:
    """Gives the batches of each split in order, cut where they have more rows than the context asks for.

    Args:
        schema: of the rows: columns that batches have besides are left out, others cast.
        elements: gives those of a split; the same each time.
        context: of the subtask.
        watermarks: whether what stands between batches is given, too.
    """

    def __init__(
        self,
        schema: Schema,
        elements: Callable[[Split], Sequence[HeldElement]],
        context: ReaderContext,
        *,
        watermarks: bool = False,
    ) -> None:
        self._schema = schema
        self._elements = elements
        self._context = context
        self._watermarks = watermarks
        self._splits: list[Split] = []
        self._no_more = False

    def start(self) -> None:
        """Ask for a split unless some were restored."""
        if not self._splits:
            self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Emit one batch, or the next part of one."""
        if not self._splits:
            return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE
        split = self._splits[0]
        number, row = (cast(int, split.position.get(name, 0)) for name in (BATCH, ROW))
        elements = self._elements(split)
        if number < len(elements):
            whole = elements[number]
            if isinstance(whole, RecordBatch):
                stop = end_of_part(whole, row, self._context.batch_rows)
                if stop > row:
                    output.emit(self._fitted(whole.slice(row, stop - row)), split.split_id)
                number, row = (number, stop) if stop < whole.num_rows else (number + 1, 0)
            else:
                self._say(whole, split.split_id, output)
                number, row = number + 1, 0
            self._splits[0] = Split(split.split_id, {**split.position, BATCH: number, ROW: row})
        if number >= len(elements):
            self._splits.pop(0)
            if not self._splits:
                self._context.request_split()
        return InputStatus.MORE_AVAILABLE

    def _say(self, element: Watermark | WatermarkStatus, split_id: str, output: SourceOutput) -> None:
        if self._watermarks and isinstance(element, Watermark):
            output.emit_watermark(element.timestamp, split_id)
        elif self._watermarks and element == IDLE:
            output.mark_idle(split_id)

    def _fitted(self, batch: RecordBatch) -> RecordBatch:
        return batch.with_columns(batch.columns.select(self._schema.names).cast(self._schema.arrow))

    def add_splits(self, splits: Sequence[Split]) -> None:
        """More to read."""
        self._splits.extend(splits)

    def notify_no_more_splits(self) -> None:
        """All splits were dealt out."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """Splits not read to their end, with the next row."""
        return tuple(self._splits)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing outside to tell."""

    def close(self) -> None:
        """Nothing to release."""


def end_of_part(batch: RecordBatch, first: int, most: int) -> int:
    """Where a part of a batch ends that begins at `first` and has at most `most` rows, or one more: an update stays whole."""
    stop = min(first + most, batch.num_rows)
    if batch.row_kinds is not None and first < stop < batch.num_rows:
        stop += batch.row_kinds[stop - 1].as_py() == RowKind.UPDATE_BEFORE
    return stop
