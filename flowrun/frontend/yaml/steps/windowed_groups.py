"""`aggregate` in windows: a query that groups rows by the bounds of their windows, as a window aggregate.

The query reads the step's rows with a window's columns behind them. Nothing finds out which these are, as YAML says more of a window than
SQL can, and rows are in windows by their event time, which need be no column: the groups are given the window that the step has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, timestamp, timestamp_ltz
from flowrun.frontend.sql.catalog import CatalogView
from flowrun.frontend.yaml.queries.entries import Entries
from flowrun.frontend.yaml.queries.step_queries import WINDOWED
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression, substitute
from flowrun.plan.nodes import WINDOW_END, WINDOW_START, Calc, NodeHints, PlanNode, WindowAggregate
from flowrun.plan.relational import WINDOW_TIME, GroupAggregate, WindowTableFunction
from flowrun.plan.rewrites.traversal import with_inputs
from flowrun.plan.traits import window_time
from flowrun.plan.windows import CountWindow, GlobalWindow, WindowSpec, window_zone

BOUNDS = (WINDOW_START, WINDOW_END)
_NO_TIME = "window time"
"""How the time of a window is called where it cannot be asked for, as a key has its name."""


@record
class WindowedRows:
    """The rows of a step as a query reads them to group them by windows.

    Attributes:
        relation: the rows, with the columns of their windows if these have bounds. Its node is not that of the rows, so that what groups
            windows is told from other parts of the query.
        width: how many columns the rows have themselves.
    """

    relation: CatalogView
    width: int

    @property
    def bounds(self) -> tuple[str, ...]:
        """Names of the columns that come out with each group."""
        return BOUNDS if self.relation.window_columns else ()


def windowed_rows(node: PlanNode, window: WindowSpec, keys: Sequence[str]) -> WindowedRows:
    """The rows of `node`, to be grouped by `keys` and the columns of their windows."""
    if isinstance(window, CountWindow | GlobalWindow):
        return WindowedRows(CatalogView(WINDOWED, replace(node)), len(node.schema))
    columns = (*BOUNDS, _NO_TIME if WINDOW_TIME in keys else WINDOW_TIME)
    types = (timestamp(3), timestamp(3), timestamp(3) if window_zone(window) == UTC_ZONE else timestamp_ltz(3))
    fields = list(node.schema.fields)
    for column, type in zip(columns, types, strict=True):
        taken = {f.name for f in fields}
        fields.append(Field(next(n for i in range(len(taken) + 1) if (n := column + "0" * i) not in taken), type))
    rows = WindowTableFunction(Schema(tuple(fields)), NodeHints(), node, window, time=0)
    return WindowedRows(CatalogView(WINDOWED, rows, window_columns=columns), len(node.schema))


def over_windows(
    entries: Entries,
    rows: WindowedRows,
    make: Callable[[tuple[int, ...], tuple[AggregateCall, ...]], WindowAggregate],
    hints: NodeHints,
) -> tuple[PlanNode, WindowAggregate] | None:
    """What the query of the entries gives, with its groups as a window aggregate, and that; None if it groups other rows than these.

    Args:
        entries: the bound query: keys, bounds, entries of `aggregate`.
        rows: what it reads.
        make: makes the aggregate from positions of keys in the rows and calls.
        hints: of the node that computes the entries from the results of the calls, if they are more than these.
    """
    group = _groups_of(entries.node, rows.relation.node)
    if group is None:
        return None
    is_direct = entries.node is group or (isinstance(entries.node, Calc) and entries.node.input is group)
    keys = tuple(k for k in group.keys if k < rows.width)
    calls = _named_calls(group, entries if is_direct else None)
    if not keys and not rows.bounds and not calls:
        calls = (AggregateCall("COUNT", (), BIGINT, "__count_0"),)  # there are no rows without columns
    window = make(keys, calls)
    results = _results(group, window, rows)[: len(group.schema)]
    if is_direct:
        columns = [substitute(c, results) for c in entries.columns]
        if not _ends_with_time(entries, group, rows):
            return _computed(window, columns, entries.names, hints), window
        # the time of the windows comes by a node of its own: savepoints have the ids of the two
        node = _computed(window, columns[:-1], entries.names[:-1], hints)
        kept = [ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema)]
        return _computed(node, [*kept, columns[-1]], entries.names, hints), window
    restored = _computed(window, results, group.schema.names, hints)
    return _with(entries.node, group, restored), window


def _groups_of(node: PlanNode, rows: PlanNode) -> GroupAggregate | None:
    stack, seen = [node], set[int]()
    while stack:
        top = stack.pop()
        if isinstance(top, GroupAggregate) and top.input is rows:
            return top
        if id(top) not in seen and top is not rows:
            seen.add(id(top))
            stack.extend(top.inputs)
    return None


def _named_calls(group: GroupAggregate, entries: Entries | None) -> tuple[AggregateCall, ...]:
    """The calls, named after the entries that are just them: by these names state is found again."""
    names: dict[int, str] = {}
    for name, column in zip(entries.names, entries.columns, strict=True) if entries is not None else ():
        if isinstance(column, ColumnRef):
            names.setdefault(column.index - len(group.keys), name)
    return tuple(
        replace(call, name=names.get(i, f"__{call.function.lower()}_{i}")) for i, call in enumerate(group.aggregates)
    )


def _results(group: GroupAggregate, window: WindowAggregate, rows: WindowedRows) -> tuple[Expression, ...]:
    """Each column of the groups over the window aggregate's."""
    schema, kept = window.schema, len(window.keys)
    columns = [ColumnRef(f.type, i, f.name) for i, f in enumerate(schema)]
    found: list[Expression] = []
    for key in group.keys:
        if key < rows.width:
            found.append(columns[window.keys.index(key)])
        elif key < rows.width + len(BOUNDS):
            found.append(columns[kept + key - rows.width])
        else:
            type = rows.relation.node.schema.types[key]
            found.append(window_time(columns[kept + 1], type, window_zone(window.window)))
    calls = columns[len(schema) - len(window.aggregates) :]
    found += [replace(c, name=str(call)) for c, call in zip(calls, window.aggregates, strict=True)]
    return tuple(found)


def _ends_with_time(entries: Entries, group: GroupAggregate, rows: WindowedRows) -> bool:
    """Whether the last entry is the time of the windows, as it is."""
    last = entries.columns[-1]
    if entries.names[-1] != WINDOW_TIME or not isinstance(last, ColumnRef) or last.index >= len(group.keys):
        return False
    return group.keys[last.index] == rows.width + len(BOUNDS)


def _computed(node: PlanNode, columns: Sequence[Expression], names: Sequence[str], hints: NodeHints) -> PlanNode:
    """The columns under their names; the node itself if they are its own."""
    schema = node.schema
    if tuple(names) == schema.names and all(isinstance(c, ColumnRef) and c.index == i for i, c in enumerate(columns)):
        return node
    fields = tuple(
        Field(n, c.type, schema.fields[c.index].nullable if isinstance(c, ColumnRef) else True)
        for n, c in zip(names, columns, strict=True)
    )
    return Calc(Schema(fields), hints, node, tuple(columns))


def _with(node: PlanNode, old: PlanNode, new: PlanNode) -> PlanNode:
    """The node with another node in place of one below it."""
    if node is old:
        return new
    inputs = tuple(_with(i, old, new) for i in node.inputs)
    return node if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) else with_inputs(node, inputs)
