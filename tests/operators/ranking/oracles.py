"""Ranking row at a time, over Python lists: what the vectorised operators must give."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import total_ordering
from typing import Any

from flowrun.core.schema import Schema
from flowrun.core.semantics import NullOrder, RankFunction, SortKey
from flowrun.core.types import BIGINT, DOUBLE, STRING

Row = tuple[Any, ...]

SCHEMA = Schema.of(k=STRING, a=BIGINT, s=STRING, d=DOUBLE)
TEXTS = ("q", "a rather long text 1", "a rather long text 2", None, "")
NUMBERS = (1.5, -2.0, None, 0.0, 2.0)


@total_ordering
class Reversed:
    """Orders as its value does, the other way round."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and bool(self.value == other.value)

    def __lt__(self, other: Reversed) -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


def sort_key(row: Row, order: Sequence[SortKey]) -> tuple[Any, ...]:
    """What Python sorts a row by."""
    parts: list[Any] = []
    for key in order:
        value = row[key.column]
        if value is None:
            parts.append((0 if key.nulls is NullOrder.FIRST else 2, 0))
        else:
            parts.append((1, Reversed(value) if key.descending else value))
    return tuple(parts)


def ranked(rows: Iterable[Row], order: Sequence[SortKey], ranking: RankFunction) -> list[tuple[int, Row]]:
    """(rank, row) in order; ties in the order given."""
    found: list[tuple[int, Row]] = []
    rank = dense = 0
    previous: object = None
    for position, row in enumerate(sorted(rows, key=lambda r: sort_key(r, order)), 1):
        key = sort_key(row, order)
        if position == 1 or key != previous:
            rank, dense = position, dense + 1
        previous = key
        found.append(
            ({RankFunction.ROW_NUMBER: position, RankFunction.RANK: rank, RankFunction.DENSE_RANK: dense}[ranking], row)
        )
    return found


def top(
    partitions: Mapping[Any, Sequence[Row]],
    order: Sequence[SortKey],
    ranking: RankFunction,
    first: int,
    last: int,
    *,
    numbered: bool,
) -> Counter[Row]:
    """The rows of each partition whose rank is within the bounds."""
    found: Counter[Row] = Counter()
    for rows in partitions.values():
        for rank, row in ranked(rows, order, ranking):
            if first <= rank <= last:
                found[(*row, rank) if numbered else row] += 1
    return found


def fold(held: Counter[Row], changes: Iterable[tuple[str, Row]]) -> Counter[Row]:
    """What a reader holds after these changes, which may only take back what it holds; pairs of −U and +U are adjacent."""
    folded = Counter(held)
    waiting = False
    for kind, row in changes:
        assert (kind == "+U") == waiting, "a pair of -U and +U was separated"
        waiting = kind == "-U"
        if kind in ("+I", "+U"):
            folded[row] += 1
        else:
            assert folded[row] > 0, f"{kind} {row} takes back a row that was not sent"
            folded[row] -= 1
    assert not waiting
    return +folded


def distance(before: Counter[Row], after: Counter[Row]) -> int:
    """The least number of changes that lead from one result to the other."""
    return sum((before - after).values()) + sum((after - before).values())


def some_order(dice: random.Random) -> tuple[SortKey, ...]:
    """None to three keys over columns of `SCHEMA`, in any direction."""
    columns = dice.sample([1, 2, 3], dice.choice([0, 1, 1, 2, 3]))
    return tuple(SortKey(c, dice.random() < 0.5, dice.choice([NullOrder.LAST, NullOrder.FIRST])) for c in columns)


def some_row(dice: random.Random, span: int) -> Row:
    """A row of `SCHEMA` with few partitions and many ties."""
    return (
        dice.choice(["a", "b", "c", None]),
        dice.choice([None, *range(span)]),
        dice.choice(TEXTS),
        dice.choice(NUMBERS),
    )


def columns(rows: Sequence[Row], schema: Schema = SCHEMA) -> dict[str, list[Any]]:
    """Rows as `OperatorHarness.push` takes them."""
    return {name: [row[i] for row in rows] for i, name in enumerate(schema.names)}
