"""Compares rows that are expected with those that came, and shows what differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from flowrun.core.record import record
from flowrun.runners.pipeline_tests.captured import Change, Row, hashable
from flowrun.runners.pipeline_tests.row_texts import value_text

MISSING, UNEXPECTED = "-", "+"
MOST_SHOWN = 20
"""Of each kind of rows that differ."""


@record
class Difference:
    """Rows that differ.

    Attributes:
        columns: names.
        lines: (what it is: `MISSING`, `UNEXPECTED` or empty if it is as expected, row).
        left_out: how many lines more there are.
        order: all rows are there, in another order.
    """

    columns: tuple[str, ...]
    lines: tuple[tuple[str, Row], ...]
    left_out: int = 0
    order: bool = False

    def render(self, indent: str) -> str:
        """The rows as aligned columns: `-` is expected and did not come, `+` came and is not expected."""
        table = [("", self.columns), *self.lines]
        texts = [(mark, [v if mark == "" and v in self.columns else value_text(v) for v in row]) for mark, row in table]
        texts[0] = ("", list(self.columns))
        widths = [max(len(row[i]) for _, row in texts) for i in range(len(self.columns))]
        shown = [
            f"{indent}{mark or ' '} " + "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip()
            for mark, row in texts
        ]
        if self.left_out:
            shown.append(f"{indent}  … and {self.left_out} more")
        return "\n".join(shown)


def difference(
    columns: Sequence[str],
    expected: Sequence[Row],
    came: Sequence[Row],
    *,
    in_order: bool = False,
    key: Sequence[str] = (),
    tolerance: float = 0.0,
) -> Difference | None:
    """What differs; None: nothing.

    Args:
        columns: names.
        expected: rows.
        came: rows.
        in_order: their order counts.
        key: columns by which rows that differ are put side by side; empty: by how much they have in common.
        tolerance: of floating numbers, relative to them.

    >>> difference(["k", "n"], [("a", 1)], [("a", 2)]).lines
    (('-', ('a', 1)), ('+', ('a', 2)))
    """
    columns = tuple(columns)
    if in_order and _all_equal(expected, came, tolerance):
        return None
    missing, unexpected = _unmatched(expected, came, tolerance)
    if not missing and not unexpected:
        if not in_order:
            return None
        lines = [(MISSING, r) for r in expected] + [(UNEXPECTED, r) for r in came]
        return Difference(columns, tuple(lines[: 2 * MOST_SHOWN]), max(len(lines) - 2 * MOST_SHOWN, 0), order=True)
    places = [columns.index(k) for k in key if k in columns]
    lines = _side_by_side(missing, unexpected, places)
    return Difference(columns, tuple(lines[: 2 * MOST_SHOWN]), max(len(lines) - 2 * MOST_SHOWN, 0))


def as_rows(changes: Sequence[Change]) -> list[Row]:
    """Changes as rows whose first value is the kind."""
    return [(change.kind.symbol, *change.row) for change in changes]


def _all_equal(expected: Sequence[Row], came: Sequence[Row], tolerance: float) -> bool:
    return len(expected) == len(came) and all(equal(a, b, tolerance) for a, b in zip(expected, came, strict=True))


def _unmatched(expected: Sequence[Row], came: Sequence[Row], tolerance: float) -> tuple[list[Row], list[Row]]:
    """(rows that have no partner among those that came, those of these that have none)."""
    by_value: dict[object, list[int]] = {}
    for i, row in enumerate(came):
        by_value.setdefault(hashable(row), []).append(i)
    taken: set[int] = set()
    rest = []
    for row in expected:
        places = by_value.get(hashable(row))
        if places:
            taken.add(places.pop(0))
        else:
            rest.append(row)
    left = [row for i, row in enumerate(came) if i not in taken]
    missing = []
    for row in rest:  # what is equal only nearly is looked for among what is left, which is little
        near = next((i for i, other in enumerate(left) if equal(row, other, tolerance)), None)
        if near is None:
            missing.append(row)
        else:
            left.pop(near)
    return missing, left


def equal(a: Any, b: Any, tolerance: float) -> bool:
    """Whether values are equal, floating numbers up to a relative difference; NaN equals NaN.

    >>> equal((1.0, None), (1.0 + 1e-12, None), 1e-9), equal(1, 2, 1e-9)
    (True, False)
    """
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * 1e-3) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(v, b[k], tolerance) for k, v in a.items())
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a == b
    return bool(a == b)


def _side_by_side(missing: list[Row], unexpected: list[Row], key: list[int]) -> list[tuple[str, Row]]:
    """Each missing row, and under it the one that came in its place, if one is like it."""
    left = list(unexpected)
    lines: list[tuple[str, Row]] = []
    for row in missing:
        lines.append((MISSING, row))
        partner = _partner(row, left, key)
        if partner is not None:
            lines.append((UNEXPECTED, left.pop(partner)))
    return [*lines, *((UNEXPECTED, row) for row in left)]


def _partner(row: Row, others: list[Row], key: list[int]) -> int | None:
    if key:
        mine = hashable([row[i] for i in key])
        return next((i for i, other in enumerate(others) if hashable([other[k] for k in key]) == mine), None)
    alike = [sum(a == b for a, b in zip(row, other, strict=True)) for other in others]
    best = max(alike, default=0)
    return alike.index(best) if best * 2 >= len(row) and best else None
