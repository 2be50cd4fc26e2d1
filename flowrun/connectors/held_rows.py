"""Reads rows that are in the memory of the process: constant rows, and the tables of the `memory` connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from flowrun.api.operator import InputStatus
from flowrun.api.source import ReaderContext, SourceOutput, Split
from flowrun.core.elements import IDLE, RecordBatch, RowKind, Watermark, WatermarkStatus
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, members

BATCH, ROW = "batch", "row"
"""Members of a split's position: the number of the element to go on with, and, if it is a batch, its first row that was not given. Both
are 0 if they are left out.
"""

HeldElement: TypeAlias = RecordBatch | Watermark | WatermarkStatus
"""A batch of rows, or, between batches, a watermark of the split or a change of its idleness."""


def held_rows_position(shapes: Mapping[str, Shape]) -> Shape:
    """The shape of the positions of splits whose other members are `shapes`."""
    return members(shapes, later={BATCH: integer(), ROW: integer()})


class HeldRowsReader:
    """Gives the batches of each split in order, cut where they have more rows than the context asks for.

    Args:
        schema: the columns of the rows: those of the batches are cast to it, and columns that it does not have are left out.
        elements: gives the elements of a split, the same each time.
        context: the context of the subtask.
        watermarks: whether the elements between the batches are given too.
        grows: whether more elements may come behind the last one, of which the reader is told by `ReaderContext.notify_available`.
    """

    def __init__(
        self,
        schema: Schema,
        elements: Callable[[Split], Sequence[HeldElement]],
        context: ReaderContext,
        *,
        watermarks: bool = False,
        grows: Callable[[], bool] = lambda: False,
    ) -> None:
        self._grows = grows
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
        elif self._grows():
            return InputStatus.NOTHING_AVAILABLE
        if number >= len(elements) and not self._grows():
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
        """Take splits to read."""
        self._splits.extend(splits)

    def notify_no_more_splits(self) -> None:
        """Take note that all splits were handed out."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """The splits that were not read to their end, with the next row of each."""
        return tuple(self._splits)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing outside to tell."""

    def close(self) -> None:
        """Nothing to release."""


def end_of_part(batch: RecordBatch, first: int, most: int) -> int:
    """The end of a part of a batch that begins at row `first` and has at most `most` rows, or one more so that an update stays whole."""
    stop = min(first + most, batch.num_rows)
    if batch.row_kinds is not None and first < stop < batch.num_rows:
        stop += batch.row_kinds[stop - 1].as_py() == RowKind.UPDATE_BEFORE
    return stop
