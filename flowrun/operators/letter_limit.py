"""How many dead letters there may be of a source: each subtask counts its own, over restarts, and fails the job when they are too many."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowrun.api.state import OperatorState
from flowrun.core.row_errors import LetterLimit
from flowrun.errors import DataError

LETTER_COUNTS = "letter_counts"
"""The name of the state, of a source with a limit."""
_SCHEMA = pa.schema([("records", pa.int64()), ("letters", pa.int64())])
_FIRST_LOOK = 100
"""How many records are to be read before their share is looked at: of few records one is many percent."""


class LetterCounts:
    """Counts what one subtask of a source has read and what it has put aside.

    Args:
        limit: how many dead letters there may be.
        place: what messages call the source.
        restored: what subtasks have counted before; they are added up.
    """

    def __init__(self, limit: LetterLimit, place: str, restored: OperatorState | None) -> None:
        self._limit = limit
        self._place = place
        rows: Sequence[dict[str, int]] = [] if restored is None else restored.rows.to_pylist()
        self._records = sum(row["records"] for row in rows)
        self._letters = sum(row["letters"] for row in rows)

    def add(self, records: int, letters: int, *, at_end: bool = False) -> None:
        """Count what one poll brought.

        Args:
            records: how many were read, those that were put aside among them.
            letters: how many were put aside.
            at_end: nothing follows: their share is looked at, however few they are.

        Raises:
            DataError: too many were put aside.
        """
        self._records += records
        self._letters += letters
        most, percent = self._limit.records, self._limit.percent
        if letters and most is not None and self._letters > most:
            self._fail(f"max_records is {most}")
        looks = at_end or (letters > 0 and self._records >= _FIRST_LOOK)
        if looks and percent is not None and self._letters * 100 > percent * self._records:
            self._fail(f"max_percent is {percent:g}")

    def _fail(self, limit: str) -> None:
        raise DataError(
            f"{self._place}: {self._letters} of {self._records} records are dead letters: {limit}",
            hint="look at what is wrong with them (flowrun dead-letters list), mend the records or the pipeline, or raise the limit",
        )

    def snapshot(self) -> OperatorState:
        """What was counted so far."""
        return OperatorState(
            pa.Table.from_pylist([{"records": self._records, "letters": self._letters}], schema=_SCHEMA)
        )
