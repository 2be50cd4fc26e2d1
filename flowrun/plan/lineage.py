"""From which columns of which tables each column of a sink comes: through expressions, aggregates, joins, windows and functions.

Two things are told apart: columns that the values are *made of*, and columns that decide *which rows there are* and in which group they
are: conditions, keys of joins and groups, orders, times of windows. A user's function may use every column that it is given.
"""

from __future__ import annotations

from functools import cache

from flowrun.core.record import record
from flowrun.plan.expressions import Expression, columns_used
from flowrun.plan.nodes import Plan, PlanNode, Scan, SideOutput, Sink, Union
from flowrun.plan.relational import AssignTime
from flowrun.plan.rewrites.columns import deciding, is_added, made_of

_AS_THEY_ARE = (Sink, Union, SideOutput)
"""Kinds whose columns are those of each input, in place."""


@record
class Origin:
    """A column of a table that is read."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


@record
class ColumnLineage:
    """Where a column of a sink comes from.

    Attributes:
        sink: its name.
        column: of the sink.
        made_of: what its values are made of.
        depends_on: what decides which rows there are, beside these.
        through: names of the steps on the way, nearest to the sink last.
    """

    sink: str
    column: str
    made_of: tuple[Origin, ...]
    depends_on: tuple[Origin, ...]
    through: tuple[str, ...]


def sink_lineage(sink: Sink) -> tuple[ColumnLineage, ...]:
    """Where each column of a sink comes from."""
    walk = _Walk()
    return tuple(
        ColumnLineage(
            sink.table.name,
            field.name,
            tuple(sorted(walk.values(sink, i), key=str)),
            tuple(sorted(walk.rows(sink) - walk.values(sink, i), key=str)),
            tuple(dict.fromkeys(walk.steps(sink, i))),
        )
        for i, field in enumerate(sink.schema.fields)
    )


def plan_lineage(plan: Plan) -> tuple[ColumnLineage, ...]:
    """Where each column of each sink comes from."""
    return tuple(column for sink in plan.sinks for column in sink_lineage(sink))


class _Walk:
    """Goes from nodes up to the scans; every node and column is looked at once."""

    def __init__(self) -> None:
        self.values = cache(self._values)
        self.rows = cache(self._rows)
        self.steps = cache(self._steps)
        self._times = cache(self._event_times)

    def _values(self, node: PlanNode, column: int) -> frozenset[Origin]:
        if isinstance(node, Scan):
            return _of_scan(node, node.projections[column])
        if _is_added_time(node, column):
            return self._times(node)
        return frozenset(origin for child, c in inputs_of(node, column) for origin in self.values(child, c))

    def _rows(self, node: PlanNode) -> frozenset[Origin]:
        found = set().union(*map(self.rows, node.inputs))
        if not isinstance(node, (Scan, *_AS_THEY_ARE)):
            for child, column in deciding(node):
                found |= self.values(child, column)
        if any(_is_added_time(node, i) for i in range(len(node.schema))):  # rows belong to windows
            found |= self._times(node)
        return frozenset(found)

    def _steps(self, node: PlanNode, column: int) -> tuple[str, ...]:
        inputs = [(child, 0) for child in node.inputs] if _is_added_time(node, column) else inputs_of(node, column)
        before = tuple(name for child, c in inputs for name in self.steps(child, c))
        own = node.hints.name
        return before if own is None or isinstance(node, Scan | Sink) else (*before, own)

    def _event_times(self, node: PlanNode) -> frozenset[Origin]:
        """What the event time of the rows of a node is made of."""
        if isinstance(node, Scan):
            return frozenset() if node.watermark is None else _of_scan(node, node.watermark.time)
        if isinstance(node, AssignTime):
            return frozenset().union(*(self.values(child, c) for child, c in deciding(node)))
        return frozenset().union(*map(self._times, node.inputs))


def _of_scan(node: Scan, expression: Expression) -> frozenset[Origin]:
    return frozenset(Origin(node.table.name, node.physical.names[c]) for c in columns_used(expression))


def _is_added_time(node: PlanNode, column: int) -> bool:
    """Whether a column comes with the node and is a time: a bound of the window that the row is in."""
    added = made_of(node, column) == [] and not isinstance(node, Scan)
    return added and node.schema.fields[column].type.is_timestamp and is_added(node, column)


def inputs_of(node: PlanNode, column: int) -> list[tuple[PlanNode, int]]:
    """The columns of a node's inputs that the values of one of its columns come from; none of a scan."""
    if isinstance(node, Scan):
        return []
    if isinstance(node, _AS_THEY_ARE):
        return [(child, column) for child in node.inputs if column < len(child.schema)]
    found = made_of(node, column)
    if found is None:
        return [(child, c) for child in node.inputs for c in range(len(child.schema))]
    return deciding(node) if is_added(node, column) else found
