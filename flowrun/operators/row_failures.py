"""Rows that cannot be processed: found, counted, and left out or kept aside.

A batch is processed as a whole. Only one that fails is halved until the rows that fail stand alone, so rows that are in order cost nothing,
and what comes out does not depend on where batches begin.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, OutputTag
from flowrun.api.source import RejectedRecord
from flowrun.core.arrays import Bools
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA, DEAD_LETTER_TAG, OnError, RowErrors, RowFault
from flowrun.errors import DataError, is_from_outside
from flowrun.operators.base import AbstractOperator
from flowrun.operators.letters import Letter, letter_batches, letter_of_record, letter_of_row

T = TypeVar("T")

ROWS_SKIPPED = "numRecordsSkipped"
ROWS_DEAD_LETTERED = "numRecordsDeadLettered"
FAULTS = "numRecordsFailed."
"""Before the kind of fault, in counters."""
DEAD_LETTERS = OutputTag(DEAD_LETTER_TAG, DEAD_LETTER_SCHEMA)
_TAKES_BACK = (RowKind.UPDATE_BEFORE, RowKind.DELETE)
_log = logging.getLogger(__name__)


class RowFailures:
    """What one subtask does about rows that cannot be processed; used by its thread.

    Counts them in `numRecordsSkipped` or `numRecordsDeadLettered`, and by kind in `numRecordsFailed.<kind>`; the first of them is a note
    of the operator's metrics.
    """

    def __init__(self, errors: RowErrors, context: OperatorContext, output: Output) -> None:
        self._errors = errors
        self._output = output
        self._metrics = context.metrics
        self._noted = False
        self._now_ms = context.processing_time.now_ms
        self._job = context.job_id or None
        self._letters: list[Letter] = []
        self.letters_kept = 0
        """How many dead letters there were so far."""

    @property
    def isolates(self) -> bool:
        """Whether rows that fail are left out."""
        return self._errors.mode is not OnError.FAIL

    @property
    def passes_watermarks(self) -> bool:
        """Whether watermarks between the rows may be left to the batch: rows that are left out would take some with them."""
        return not self.isolates

    def survivors(
        self, batch: RecordBatch, fault: RowFault, compute: Callable[[RecordBatch], T]
    ) -> Iterator[tuple[RecordBatch, T]]:
        """The rows that `compute` does not fail on, with what it gives: in order, in pieces; all in one if none fails.

        Args:
            batch: at least one row.
            fault: what rows are called that it fails on.
            compute: called again on parts of the batch if it fails, so it has no effect on rows of which it raises.

        Raises:
            DataError: of `compute`, unless rows that fail are left out, or if it is due to the outside world, not to a row.
        """
        if not self.isolates:
            yield batch, compute(batch)
            return
        waiting = [batch]
        while waiting:
            piece = waiting.pop()
            try:
                made = compute(piece)
            except DataError as error:
                if is_from_outside(error):
                    raise
                if piece.num_rows == 1:
                    self.add(piece, fault, error)
                else:
                    half = piece.num_rows // 2
                    waiting += [piece.slice(half, piece.num_rows - half), piece.slice(0, half)]
                continue
            yield piece, made
        self.send()

    def leave_out(self, rows: RecordBatch, fault: RowFault, reason: Callable[[pa.RecordBatch], str]) -> None:
        """These rows are not processed; `reason` says of each (a batch of one row) why."""
        for row in range(rows.num_rows):
            one = rows.slice(row, 1)
            self.add(one, fault, DataError(reason(one.columns)))
        self.send()

    def add(self, row: RecordBatch, fault: RowFault, error: DataError) -> None:
        """A batch of one row is not processed; its dead letter goes with the next `send`."""
        kinds = row.row_kinds
        if kinds is not None and kinds[0].as_py() in _TAKES_BACK:
            return  # what it takes back was left out, and counted, when it came
        self._count(fault, error.message)
        if self._errors.mode is OnError.DEAD_LETTER:
            letter = letter_of_row(self._errors.place, fault, row_as_json(row.columns, 0))
            self._keep(fault, error.message, letter)

    def bad_record(self, bad: RejectedRecord) -> None:
        """A record that cannot be decoded; its dead letter goes with the next `send`."""
        where = f"{bad.file}, byte {bad.offset}: "
        if bad.topic is not None:
            where = f"topic '{bad.topic}', partition {bad.partition}, offset {bad.offset}: "
        self._count(RowFault.DECODING, bad.reason, where)
        if self._errors.mode is OnError.DEAD_LETTER:
            letter = letter_of_record(bad, self._errors.origin.source or self._errors.place)
            self._keep(RowFault.DECODING, bad.reason, letter)

    def _count(self, fault: RowFault, reason: str, where: str = "") -> None:
        kept = self._errors.mode is OnError.DEAD_LETTER
        self._metrics.counter(ROWS_DEAD_LETTERED if kept else ROWS_SKIPPED).inc()
        self._metrics.counter(FAULTS + fault.value).inc()
        if not self._noted:
            self._noted = True
            self._metrics.note(f"{where}{reason}")
            _log.info("%s: rows are left out; the first: %s%s", self._errors.place, where, reason)

    def _keep(self, fault: RowFault, reason: str, letter: Letter) -> None:
        errors, origin = self._errors, self._errors.origin
        self.letters_kept += 1
        self._letters.append(
            {
                "time": self._now_ms(),
                "pipeline": origin.pipeline,
                "version": origin.version,
                "job": self._job,
                "place": errors.place,
                "source": origin.source,
                "kind": fault.value,
                "reason": reason,
                "format": origin.format,
                **letter,
            }
        )

    def send(self) -> None:
        """Send the dead letters that have gathered. Before a snapshot there are none, if whoever adds some calls this."""
        if self._letters:
            letters, self._letters = self._letters, []
            for columns in letter_batches(letters):
                self._output.emit_side(DEAD_LETTERS, RecordBatch(columns))


class RowOperator(AbstractOperator):
    """The base of operators that process each row by itself, and may leave out rows that cannot be processed.

    Args:
        errors: what happens to such rows.
    """

    def __init__(self, errors: RowErrors) -> None:
        self._errors = errors
        self._failures: RowFailures | None = None

    def open(self) -> None:
        """Prepare for rows that cannot be processed."""
        self._failures = RowFailures(self._errors, self.context, self.output)

    @property
    def failures(self) -> RowFailures:
        """What the operator does about rows that cannot be processed; it is there after `open`."""
        assert self._failures is not None
        return self._failures

    @property
    def passes_watermarks(self) -> bool:
        """Whether watermarks may stay between the rows of a batch: they may, unless rows may be left out."""
        return self.failures.passes_watermarks


def without_nulls(columns: pa.RecordBatch, positions: tuple[int, ...]) -> Bools | None:
    """Which rows have a value in all of these columns; None: all do."""
    whole = None
    for position in positions:
        column = columns.column(position)
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            whole = valid if whole is None else whole & valid
    return whole


def row_as_json(columns: pa.RecordBatch, row: int) -> str:
    """One row as JSON: times as text, decimals as text that keeps their digits, bytes as Base64.

    >>> row_as_json(pa.record_batch({"id": [1, 2], "at": pa.array([0, 1500], pa.timestamp("ms"))}), 1)
    '{"id":2,"at":"1970-01-01 00:00:01.500"}'
    """
    values = {name: _plain(columns.column(i)[row]) for i, name in enumerate(columns.schema.names)}
    return orjson.dumps(values, default=str).decode()


def _plain(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_struct(kind):
        return {name: _plain(value[name]) for name in kind.names}
    if pa.types.is_map(kind):
        return {str(_plain(item["key"])): _plain(item["value"]) for item in value.values}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_plain(element) for element in value.values]
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return value.cast(pa.string()).as_py()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return base64.b64encode(value.as_py()).decode()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        found = value.as_py()
        return found if isinstance(found, float) and np.isfinite(found) else str(found)
    return value.as_py()
