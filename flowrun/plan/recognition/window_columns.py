"""Rows between a window table function and the aggregate over it, without the window's columns.

An aggregate that knows its windows needs no row more than once, so the function goes and what stands above it moves onto its input. That
is possible where the window's columns are only passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from flowrun.core.schema import Field, Schema
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression, columns_used, remap_columns
from flowrun.plan.nodes import Calc, NodeHints, PlanNode
from flowrun.plan.recognition.nodes_made import auxiliary, column
from flowrun.plan.relational import Expand, WindowTableFunction
from flowrun.plan.traits import Role, window_end_of

_Place: TypeAlias = int | Role | None
"""Where a column has gone: its position, or which of the window's columns it is; None: it is computed from those and gone."""


@dataclass(slots=True)
class Unwindowed:
    """The rows without the window's columns.

    Attributes:
        node: gives them.
        places: for each column that there was with the window: its position in `node`, or the window's column that it is.
        origins: for each column of `node`, the column of the function's input that it is; None: it is computed.
    """

    node: PlanNode
    places: tuple[_Place, ...]
    origins: tuple[int | None, ...]

    def position(self, old: int) -> int | None:
        """Where a column is now; None if it belongs to the window or is gone."""
        place = self.places[old]
        return place if isinstance(place, int) else None

    def moved(self, expression: Expression) -> Expression | None:
        """The expression over the new rows; None if it needs the window."""
        used = {i: self.position(i) for i in columns_used(expression)}
        known = {i: p for i, p in used.items() if p is not None}
        return remap_columns(expression, known) if len(known) == len(used) else None

    def moved_call(self, call: AggregateCall) -> AggregateCall | None:
        """The aggregate over the new rows; None if it needs the window."""
        arguments = [self.moved(a) for a in call.arguments]
        condition = None if call.filter is None else self.moved(call.filter)
        if None in arguments or (condition is None) != (call.filter is None):
            return None
        present = tuple(a for a in arguments if a is not None)
        return replace(call, arguments=present, filter=condition)


def steps_over_window(node: PlanNode) -> tuple[WindowTableFunction, tuple[Calc | Expand, ...]] | None:
    """The window table function below a node through Calcs and Expands, and those, lowest first; None if there is none."""
    steps: list[Calc | Expand] = []
    while isinstance(node, Calc | Expand):
        steps.append(node)
        node = node.input
    return (node, tuple(reversed(steps))) if isinstance(node, WindowTableFunction) else None


def without_window(
    function: WindowTableFunction, steps: Sequence[Calc | Expand], input: PlanNode, hints: NodeHints
) -> Unwindowed | None:
    """The steps over `input`, the rows that the function reads, instead of over the function; None if a filter needs the window.

    Args:
        function: adds the window's columns.
        steps: as `steps_over_window` gives them.
        input: rows with the columns of `function.input`.
        hints: of the aggregate, after which the moved steps are named.
    """
    width = len(function.input.schema)
    rows = Unwindowed(input, (*range(width), Role.WINDOW_START, Role.WINDOW_END, Role.WINDOW_TIME), tuple(range(width)))
    for step in steps:
        moved = _calc(step, rows, hints) if isinstance(step, Calc) else _expand(step, rows, hints)
        if moved is None:
            return None
        rows = moved
    return rows


def _calc(step: Calc, rows: Unwindowed, hints: NodeHints) -> Unwindowed | None:
    condition = None
    if step.condition is not None:
        condition = rows.moved(step.condition)
        if condition is None:
            return None
    kept = _Kept(step.schema, rows)
    places = [kept.place(i, (p,)) for i, p in enumerate(step.projections)]
    (projections,) = kept.projections(1)
    node = Calc(kept.schema(), auxiliary(hints, "input"), rows.node, projections, condition)
    return Unwindowed(node, tuple(places), kept.origins())


def _expand(step: Expand, rows: Unwindowed, hints: NodeHints) -> Unwindowed:
    kept = _Kept(step.schema, rows)
    places = [kept.place(i, column) for i, column in enumerate(zip(*step.projections, strict=True))]
    node = Expand(kept.schema(), auxiliary(hints, "sets"), rows.node, kept.projections(len(step.projections)))
    return Unwindowed(node, tuple(places), kept.origins())


class _Kept:
    """Columns of a step that do not need the window; each as one expression a projection list."""

    def __init__(self, schema: Schema, rows: Unwindowed) -> None:
        self._schema = schema
        self._rows = rows
        self._fields: list[Field] = []
        self._columns: list[tuple[Expression, ...]] = []

    def place(self, index: int, expressions: tuple[Expression, ...]) -> _Place:
        """Keep the column if that is possible; where it has gone."""
        roles = {self._role(e) for e in expressions}
        if len(roles) == 1 and (role := roles.pop()) is not None:
            return role
        moved = [self._rows.moved(e) for e in expressions]
        present = tuple(m for m in moved if m is not None)
        if len(present) < len(moved):
            return None
        self._fields.append(self._schema.fields[index])
        self._columns.append(present)
        return len(self._fields) - 1

    def _role(self, expression: Expression) -> Role | None:
        if isinstance(expression, ColumnRef):
            place = self._rows.places[expression.index]
            return place if isinstance(place, Role) else None
        end = window_end_of(expression)
        return Role.WINDOW_TIME if end is not None and self._rows.places[end.index] is Role.WINDOW_END else None

    def projections(self, lists: int) -> tuple[tuple[Expression, ...], ...]:
        """The projection lists. Rows must have a column to be counted by: if none is kept, the input's first is."""
        if not self._fields:
            first = column(self._rows.node.schema, 0)
            self._fields.append(Field(first.name, first.type))
            self._columns.append((first,) * lists)
        return tuple(zip(*self._columns, strict=True))

    def schema(self) -> Schema:
        """The kept columns; after `projections`."""
        return Schema(tuple(self._fields))

    def origins(self) -> tuple[int | None, ...]:
        """The input column that each kept column is in all lists."""
        found: list[int | None] = []
        for expressions in self._columns:
            sources = {self._rows.origins[e.index] if isinstance(e, ColumnRef) else None for e in expressions}
            found.append(sources.pop() if len(sources) == 1 else None)
        return tuple(found)
