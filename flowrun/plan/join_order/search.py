"""The search for the cheapest order of joins, over sets of tables as bits."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.plan.recognition.join_groups import Tree

_MOST = 10
"""Of more tables than so many, the orders are not all looked at."""


@record
class JoinCosts:
    """What joins of a group cost.

    Attributes:
        rows: of each table.
        shares: tables as bits, and the share of their combinations that a condition over them leaves.
        keys: the tables, as bits, on either side of each equality that joins can go by.
    """

    rows: Sequence[float]
    shares: Sequence[tuple[int, float]]
    keys: Sequence[tuple[int, int]]

    def result(self, tables: int) -> float:
        """Rows of the join of a set of tables, in whatever order."""
        found = 1.0
        for place, rows in enumerate(self.rows):
            if tables >> place & 1:
                found *= rows
        for over, share in self.shares:
            if over & tables == over:
                found *= share
        return max(1.0, found)

    def step(self, left: int, right: int) -> float:
        """What one join costs: the rows that it remembers, and those that it gives."""
        return self.result(left) + self.result(right) + self.result(left | right)

    def connected(self, left: int, right: int) -> bool:
        """Whether an equality connects two sets of tables."""
        return any((a & left == a and b & right == b) or (a & right == a and b & left == b) for a, b in self.keys)

    def cost(self, joins: Sequence[tuple[int, int]]) -> float:
        """What all joins of an order cost together."""
        return sum(self.step(left, right) for left, right in joins)


def cheapest(costs: JoinCosts) -> tuple[Tree, float] | None:
    """(the cheapest order without products of unconnected tables, its cost); None: there is no such order.

    Of up to ten tables all orders are looked at (dynamic programming, bushy trees too); of more, the pair with the fewest rows is joined
    first, again and again. The same input gives the same order.

    >>> chain = JoinCosts((1000, 1000, 1), ((0b011, 0.001), (0b110, 0.001)), ((0b001, 0b010), (0b010, 0b100)))
    >>> cheapest(chain)
    ((0, (1, 2)), 2004.0)
    """
    return _of_all(costs) if len(costs.rows) <= _MOST else _greedy(costs)


def _of_all(costs: JoinCosts) -> tuple[Tree, float] | None:
    count = len(costs.rows)
    results = [costs.result(tables) for tables in range(1 << count)]
    best: dict[int, tuple[Tree, float]] = {1 << place: (place, 0.0) for place in range(count)}
    for tables in range(1, 1 << count):
        lowest = tables & -tables
        part = (tables - 1) & tables
        while part:
            other = tables ^ part
            # the side with the first table is the left one
            if part & lowest and part in best and other in best and costs.connected(part, other):
                step = results[part] + results[other] + results[tables]
                cost = best[part][1] + best[other][1] + step
                if tables not in best or cost < best[tables][1]:
                    best[tables] = (best[part][0], best[other][0]), cost
            part = (part - 1) & tables
    return best.get((1 << count) - 1)


def _greedy(costs: JoinCosts) -> tuple[Tree, float] | None:
    parts: list[tuple[int, Tree]] = [(1 << place, place) for place in range(len(costs.rows))]
    total = 0.0
    while len(parts) > 1:
        pairs = [
            (costs.result(a | b), i, j)
            for i, (a, _) in enumerate(parts)
            for j, (b, _) in enumerate(parts[i + 1 :], i + 1)
            if costs.connected(a, b)
        ]
        if not pairs:
            return None
        _, i, j = min(pairs)
        (left, first), (right, second) = parts[i], parts[j]
        total += costs.step(left, right)
        parts[i] = left | right, (first, second)
        del parts[j]
    return parts[0][1], total
