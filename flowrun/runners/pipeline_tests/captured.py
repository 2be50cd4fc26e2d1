"""What a sink has got so far, as changes and as the table that is left of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema

Row: TypeAlias = tuple[Any, ...]
"""Python values of the columns, as Arrow gives them."""


@record
class Change:
    """One row and its kind."""

    kind: RowKind
    row: Row


class CapturedRows:
    """The rows of one sink, in the order in which they came. A `RowListener`."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.changes: list[Change] = []

    def take(self, batch: RecordBatch) -> None:
        """Keep rows with their kinds."""
        columns = [column.to_pylist() for column in batch.columns.columns]
        rows = list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows
        kinds = [RowKind.INSERT] * len(rows) if batch.row_kinds is None else map(RowKind, batch.row_kinds.to_pylist())
        self.changes += map(Change, kinds, rows)


def table_of(changes: Sequence[Change]) -> list[Row]:
    """The rows that are left when the changes are applied, as often as they are there, in the order in which they came.

    A row that is taken back before it comes, as another subtask was faster, is not there.
    """
    counts: Counter[Hashable] = Counter()
    for change in changes:
        counts[hashable(change.row)] += -1 if change.kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) else 1
    left = []
    for change in reversed(changes):
        if change.kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) and counts[hashable(change.row)] > 0:
            counts[hashable(change.row)] -= 1
            left.append(change.row)
    return left[::-1]


def hashable(value: Any) -> Hashable:
    """A value that is equal if and only if the values are; NaN equals itself."""
    if isinstance(value, tuple | list):
        return tuple(map(hashable, value))
    if isinstance(value, dict):
        return tuple((k, hashable(v)) for k, v in value.items())
    return "NaN" if value != value else value  # noqa: PLR0124 - only NaN differs from itself
