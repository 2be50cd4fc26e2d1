"""The context that functions of `map` and `flat_map` get if they have a second parameter of that name: time, and side outputs.

What a function sends beside its rows goes with them: nothing of a row, or of a batch, on which it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from flowrun.api.keyed_state import Values
from flowrun.api.operator import OutputTag
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.operators.kept_output import KeptOutput, KeptRows
from flowrun.operators.process.batch_output import BatchOutputs
from flowrun.operators.process.row_output import RowOutputs

_NONE = Schema(())


class Surroundings(Protocol):
    """What an operator knows of time."""

    @property
    def current_watermark(self) -> int:
        """Event time, ms."""
        ...

    @property
    def processing_time_ms(self) -> int:
        """What the clock shows, ms."""
        ...


class _Context:
    """What contexts of rows and of batches have in common."""

    def __init__(self, operator: Surroundings, tags: tuple[OutputTag, ...], place: str) -> None:
        self._operator = operator
        self._sides = {tag.name: tag.schema for tag in tags}
        self._place = place
        self._kept = KeptOutput()

    @property
    def current_watermark(self) -> int:
        """Event time: no row before it is expected any more, ms."""
        return self._operator.current_watermark

    @property
    def processing_time(self) -> int:
        """What the clock shows, ms."""
        return self._operator.processing_time_ms


class RowMapContext(_Context):
    """The context of functions on rows.

    Attributes:
        timestamp: event time of the row, ms; None if the stream has no event time.
    """

    def __init__(self, operator: Surroundings, tags: tuple[OutputTag, ...], place: str) -> None:
        super().__init__(operator, tags, place)
        self.timestamp: int | None = None

    def side_output(self, name: str, row: Mapping[str, Any], timestamp: int | None = None) -> None:
        """Send a row to a declared side output."""
        self._outputs.side(name, row, timestamp)

    def begin(self, batch: RecordBatch) -> None:
        """The function is called for the rows of a batch; what it sent before is forgotten."""
        self._kept.take()
        self._outputs = RowOutputs(self._kept, _NONE, self._sides, self._place)
        self._outputs.hold()
        self._times = None if batch.timestamps is None else batch.timestamps.to_pylist()
        self._kinds = None if batch.row_kinds is None else batch.row_kinds.to_pylist()

    def at(self, row: int) -> None:
        """The function is called for this row."""
        self.timestamp = None if self._times is None else self._times[row]
        self._outputs.row, self._outputs.time = row, self.timestamp
        self._outputs.kind = None if self._kinds is None else self._kinds[row]

    def taken(self) -> KeptRows:
        """What the function sent beside since `begin`.

        Raises:
            DataError: a value does not fit its column.
        """
        self._outputs.flush()
        return self._kept.take()


class BatchMapContext(_Context):
    """The context of functions on batches.

    Attributes:
        timestamps: event time of each row, ms; None if the stream has no event time.
    """

    def __init__(self, operator: Surroundings, tags: tuple[OutputTag, ...], place: str) -> None:
        super().__init__(operator, tags, place)
        self._outputs = BatchOutputs(self._kept, _NONE, self._sides, place)
        self.timestamps: pa.Int64Array | None = None

    def side_output(
        self, name: str, rows: pa.RecordBatch, parents: Values | None = None, timestamps: Values | None = None
    ) -> None:
        """Send rows to a declared side output. Their event times are `timestamps`, or those of `parents`: positions in the batch; None: row
        i is made of row i.
        """
        self._outputs.side(name, rows, parents, timestamps)

    def begin(self, batch: RecordBatch) -> None:
        """The function is called with a batch; what it sent before is forgotten."""
        self._kept.take()
        self.timestamps = batch.timestamps
        self._outputs.begin(batch.num_rows, batch.timestamps, batch.row_kinds)

    def at(self, row: int) -> None:
        """Never called."""

    def taken(self) -> KeptRows:
        """What the function sent beside since `begin`."""
        return self._kept.take()


MapContext = RowMapContext | BatchMapContext
