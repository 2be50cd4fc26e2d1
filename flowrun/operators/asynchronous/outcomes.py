"""What asynchronous functions are given and what they give: contexts, and how results leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.keyed_state import Values
from flowrun.api.metrics import MetricGroup
from flowrun.api.operator import Output
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import DataError
from flowrun.operators.asynchronous.queue import Entry
from flowrun.operators.kept_output import KeptOutput, send_kept
from flowrun.operators.process.batch_output import BatchOutputs
from flowrun.operators.process.row_output import RowOutputs


@record
class OpenContext:
    """See `AsyncOpenContext`."""

    subtask: int
    parallelism: int
    metrics: MetricGroup


class RowCallContext:
    """See `AsyncContext`: of one call, so that what several send beside their results does not mix."""

    __slots__ = ("attempt", "sides", "timestamp")

    def __init__(self, entry: Entry) -> None:
        self.attempt = entry.attempt
        self.timestamp = entry.time
        self.sides: list[tuple[str, Mapping[str, Any], int | None]] = []

    def side_output(self, name: str, row: Mapping[str, Any], timestamp: int | None = None) -> None:
        """Keep a row until the call has ended well."""
        self.sides.append((name, row, timestamp))


class BatchCallContext:
    """See `AsyncBatchContext`: of one call."""

    __slots__ = ("attempt", "sides", "timestamps")

    def __init__(self, entry: Entry) -> None:
        self.attempt = entry.attempt
        self.timestamps = entry.rows.timestamps
        self.sides: list[tuple[str, Any, Values | None, Values | None]] = []

    def side_output(
        self, name: str, rows: pa.RecordBatch, parents: Values | None = None, timestamps: Values | None = None
    ) -> None:
        """Keep rows until the call has ended well."""
        self.sides.append((name, rows, parents, timestamps))


CallContext = RowCallContext | BatchCallContext


class Results:
    """Sends what calls gave, when it is its turn.

    Args:
        output: of the operator.
        schema: columns of the results.
        sides: columns of the side outputs.
        place: begins messages.
    """

    def __init__(self, output: Output, schema: Schema, sides: Mapping[str, Schema], place: str) -> None:
        self._output = output
        self._rows = RowOutputs(output, schema, sides, place)
        self._rows.hold()
        self._kept = KeptOutput()
        self._batches = BatchOutputs(self._kept, schema, sides, place)

    def checked(self, entry: Entry, returned: Any, context: CallContext) -> Any:
        """The outcome of a call: of a batch what is to be sent, of a row what will be made of it with others.

        Raises:
            DataError: a batch gave what it must not.
        """
        if isinstance(context, RowCallContext):
            return None if returned is None and not context.sides else (returned, context.sides)
        rows = entry.rows
        self._batches.begin(rows.num_rows, rows.timestamps, rows.row_kinds)
        try:
            if returned is not None:
                self._batches.returned(returned)
            for name, given, parents, timestamps in context.sides:
                self._batches.side(name, given, parents, timestamps)
        finally:
            kept = self._kept.take()
        return kept

    def send(self, entries: Sequence[Entry]) -> list[tuple[Entry, DataError]]:
        """Send what finished entries gave, in this order; gives those whose rows are not what they must be, of which none is sent."""
        failed: list[tuple[Entry, DataError]] = []
        for position, entry in enumerate(entries):
            if entry.row is None:
                send_kept(entry.outcome or [], self._output)
            elif entry.outcome is not None:
                try:
                    self._collect(position, entry)
                except DataError as error:
                    self._rows.discard(position)
                    failed.append((entry, error))
        self._rows.row = self._rows.kind = None
        while True:
            try:
                self._rows.flush()
            except DataError as error:
                if error.row is None:
                    raise
                self._rows.discard(error.row)
                failed.append((entries[error.row], error))
                continue
            return failed

    def _collect(self, position: int, entry: Entry) -> None:
        rows = self._rows
        rows.row, rows.time, rows.kind = position, entry.time, entry.kind
        returned, sides = entry.outcome
        if returned is not None:
            rows.returned(returned)
        for name, row, timestamp in sides:
            rows.side(name, row, timestamp)
