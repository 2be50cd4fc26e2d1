"""The last rows of an exchange, for people who look at a running job: off until somebody asks, and off again by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime

import orjson
import pyarrow as pa

from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch, RowKind

ROWS = 10
"""Of the newest batch that was looked at."""
EVERY_MS = 250
LONGEST_ROW = 2_000
"""Characters of a row as text; longer ones are cut."""
LONGEST_MS = 300_000
"""How long one request keeps it on."""
CHANGE = "$change"
"""What the kind of change is called in the text of a row, on streams with changes."""


class RowSample:
    """The last rows that one subtask has sent to one exchange. `look` is called by the task's thread, the others by any.

    Who is asked to look while it is off pays a comparison. The rows are copied, so that no batch lives longer for them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ns = 0
        self._next_ns = 0
        self._last: tuple[pa.RecordBatch, pa.Array | None] | None = None
        self.is_on = False

    def begin(self, for_ms: int) -> None:
        """Look at rows for so long; an earlier request is replaced. 0 ends it."""
        self._until_ns = self._clock.monotonic_ns() + min(for_ms, LONGEST_MS) * 1_000_000
        self.is_on = for_ms > 0
        if not self.is_on:
            self._last = None

    def look(self, batch: RecordBatch) -> None:
        """These rows are sent; now and then the last ones are kept. Only to be called while `is_on`."""
        now = self._clock.monotonic_ns()
        if now >= self._until_ns:
            self.begin(0)
            return
        if now < self._next_ns or not batch.num_rows:
            return
        self._next_ns = now + EVERY_MS * 1_000_000
        chosen = pa.array(range(max(batch.num_rows - ROWS, 0), batch.num_rows), pa.int64())
        kinds = None if batch.row_kinds is None else batch.row_kinds.take(chosen)
        self._last = (batch.columns.take(chosen), kinds)

    def rows(self) -> tuple[str, ...]:
        """The rows as JSON texts, the newest last; none while it is off."""
        last = self._last
        if last is None or self._clock.monotonic_ns() >= self._until_ns:
            return ()
        return row_texts(*last)


def row_texts(columns: pa.RecordBatch, kinds: pa.Array | None = None) -> tuple[str, ...]:
    """Rows as JSON objects, cut where they are long.

    >>> row_texts(pa.record_batch({"k": [7], "name": ["ada"]}))
    ('{"k":7,"name":"ada"}',)
    """
    names = columns.schema.names
    values = zip(*(column.to_pylist() for column in columns.columns), strict=True)
    rows = [dict(zip(names, row, strict=True)) for row in values]
    if kinds is not None:
        changes = (RowKind(kind).symbol for kind in kinds.to_pylist())
        rows = [{CHANGE: change, **row} for change, row in zip(changes, rows, strict=True)]
    return tuple(_text(row) for row in rows)


def _text(row: dict[str, object]) -> str:
    text = orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
    return text if len(text) <= LONGEST_ROW else text[: LONGEST_ROW - 1] + "…"


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return f"0x{value[:64].hex()}{'…' if len(value) > 64 else ''}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
