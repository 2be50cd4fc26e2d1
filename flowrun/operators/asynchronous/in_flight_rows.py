"""The rows under way in a snapshot: what is written, and in which order it is taken up again.

Each row is kept with the watermark that came before it, so the watermarks between rows need no place of their own. At an unchanged number
of subtasks each takes up its own rows, with the watermarks where they were. At another the rows are dealt out, and a subtask may get some
of several old ones, which had come to different event times: they are merged by it, and no watermark goes beyond what all had come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.schema import Schema
from flowrun.errors import PipelineError

ROWS = "rows in flight"
PROGRESS = "event time"
_OWN = (
    pa.field("__from_subtask", pa.int32()),
    pa.field("__watermark", pa.int64()),
    pa.field("__time", pa.int64()),
    pa.field("__kind", pa.int8()),
)
_PROGRESS = pa.schema([pa.field("subtask", pa.int32()), pa.field("watermark", pa.int64())])


class InFlightRows:
    """Writes and reads the state of one subtask.

    Args:
        schema: columns of the rows.
        place: begins messages.

    Raises:
        PipelineError: a column has a name that the state needs.
    """

    def __init__(self, schema: Schema, place: str) -> None:
        own = (*(f.name for f in _OWN), "__subtask")  # the last one is of every file of operator state
        taken = next((name for name in own if name in schema), None)
        if taken is not None:
            raise PipelineError.of(f"{place}: no column of its input can be called '{taken}'", "give it another name")
        self._columns = schema.arrow
        self._schema = pa.schema([*_OWN, *schema.arrow])

    def snapshot(
        self, subtask: int, watermark: int, elements: Iterable[RecordBatch | Watermark | WatermarkStatus]
    ) -> OperatorSnapshot:
        """What a subtask remembers.

        Args:
            subtask: its number.
            watermark: event time that it has passed on, ms.
            elements: rows and time events that it has not passed on, in order.
        """
        pieces: list[pa.RecordBatch] = []
        for element in elements:
            if isinstance(element, RecordBatch):
                pieces.append(self._piece(element, subtask, watermark))
            elif isinstance(element, Watermark) and element.timestamp != MAX_TIMESTAMP:  # the end comes again
                watermark = max(watermark, element.timestamp)
        if watermark == MAX_TIMESTAMP:
            watermark = MIN_TIMESTAMP
        rows = pa.Table.from_batches(pieces, self._schema)
        progress = pa.Table.from_pydict({"subtask": [subtask], "watermark": [watermark]}, _PROGRESS)
        return OperatorSnapshot(
            operator={
                ROWS: OperatorState(rows, Redistribution.SPLIT),
                PROGRESS: OperatorState(progress, Redistribution.UNION),
            }
        )

    def _piece(self, rows: RecordBatch, subtask: int, watermark: int) -> pa.RecordBatch:
        count = rows.num_rows
        own = [
            pa.array(np.full(count, subtask, np.int32)),
            pa.array(np.full(count, watermark, np.int64)),
            pa.nulls(count, pa.int64()) if rows.timestamps is None else rows.timestamps,
            pa.nulls(count, pa.int8()) if rows.row_kinds is None else rows.row_kinds,
        ]
        return pa.RecordBatch.from_arrays([*own, *rows.columns.columns], schema=self._schema)

    def restored(self, snapshot: OperatorSnapshot, subtask: int, parallelism: int) -> Iterator[RecordBatch | Watermark]:
        """Rows and watermarks in the order in which they are to be taken up."""
        progress = snapshot.operator[PROGRESS].rows
        reached = dict(zip(progress["subtask"].to_pylist(), progress["watermark"].to_pylist(), strict=True))
        same = sorted(reached) == list(range(parallelism))
        limit = reached[subtask] if same else min(reached.values(), default=MIN_TIMESTAMP)
        table = snapshot.operator[ROWS].rows.combine_chunks()
        sent = MIN_TIMESTAMP
        for rows in table.to_batches():
            for watermark, piece in self._runs(rows, limit):
                if watermark > sent:
                    sent = watermark
                    yield Watermark(watermark)
                yield piece
        if limit > sent:
            yield Watermark(limit)

    def _runs(self, rows: pa.RecordBatch, limit: int) -> Iterator[tuple[int, RecordBatch]]:
        """Rows by the watermark before them, ms; at most `limit`."""
        watermarks = np.minimum(rows.column(1).to_numpy(), limit)
        order = np.lexsort((rows.column(0).to_numpy(), watermarks))  # stable: the rows of a subtask stay in order
        rows, watermarks = rows.take(pa.array(order)), watermarks[order]
        timed = rows.column(2).is_valid().to_numpy(zero_copy_only=False)
        changes = rows.column(3).is_valid().to_numpy(zero_copy_only=False)
        borders = (np.diff(watermarks) != 0) | (timed[1:] != timed[:-1]) | (changes[1:] != changes[:-1])
        for start, stop in pairwise([0, *(np.flatnonzero(borders) + 1).tolist(), rows.num_rows]):
            if stop > start:
                piece = rows.slice(start, stop - start)
                columns = pa.RecordBatch.from_arrays(piece.columns[len(_OWN) :], schema=self._columns)
                times = piece.column(2) if timed[start] else None
                yield int(watermarks[start]), RecordBatch(columns, times, piece.column(3) if changes[start] else None)
