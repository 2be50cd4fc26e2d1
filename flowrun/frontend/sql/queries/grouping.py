"""GROUP BY: keys, grouping sets and group windows, and what the select list may read of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

from sqlglot import exp

from flowrun.core.schema import Field
from flowrun.core.types import BIGINT, BOOLEAN, INT, STRING, TypeRoot
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.expressions.pending import PendingAggregate, PendingGrouping, PendingWindowBound
from flowrun.frontend.sql.expressions.query_expressions import GROUP_WINDOWS, QueryExpressionBinder
from flowrun.frontend.sql.expressions.relations import QueryScope, unique_fields
from flowrun.frontend.sql.expressions.scope import UnknownNameError
from flowrun.frontend.sql.expressions.trees import find, rewrite
from flowrun.frontend.sql.grammar.syntax import GroupingElement, SetKind
from flowrun.frontend.sql.queries.binding_context import BindingContext
from flowrun.frontend.sql.queries.bound_queries import Groups, GroupWindow, SelectParts
from flowrun.frontend.sql.queries.nodes import identity, with_lifetimes
from flowrun.frontend.sql.queries.subqueries.planner import SubqueryPlanner
from flowrun.frontend.sql.queries.tables.windows import group_window_spec
from flowrun.frontend.sql.spans import error_at, span_of
from flowrun.functions.registry import scalar
from flowrun.plan.expressions import Call, Case, ColumnRef, Expression, Literal
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import Expand, WindowTableFunction, window_columns
from flowrun.plan.windows import SessionWindow

_MOST_SETS = 64
_Sets = tuple[tuple[int, ...], ...]


class GroupingBinder:
    """Binds GROUP BY over the rows."""

    def __init__(self, context: BindingContext, expressions: QueryExpressionBinder) -> None:
        self._context = context
        self._expressions = expressions
        self._keys: list[Expression] = []
        self._window: GroupWindow | None = None

    def bound(self, elements: Sequence[GroupingElement]) -> Groups:
        """The keys, and the grouping sets over them: the product of the sets of each element."""
        steps = [lambda e=element: self._sets(e) for element in elements]
        sets = self._context.all_of(steps)
        combined = [tuple(dict.fromkeys(k for part in parts for k in part)) for parts in product(*sets)]
        if len(combined) > _MOST_SETS:
            raise error_at(
                f"GROUP BY makes {len(combined)} grouping sets, at most {_MOST_SETS} are possible", elements[0].span
            )
        place = (elements[0].span[0], elements[-1].span[1])
        return Groups(tuple(self._keys), tuple(combined), self._window, place)

    def _sets(self, element: GroupingElement) -> _Sets:
        match element.kind:
            case None:
                return (tuple(k for e in element.expressions if (k := self._key(e)) is not None),)
            case SetKind.SETS:
                return tuple(s for e in element.elements for s in self._sets(e))
            case _:
                members = [self._sets(e)[0] for e in element.elements]
                if element.kind is SetKind.ROLLUP:
                    chosen = [members[:n] for n in range(len(members), -1, -1)]
                else:
                    chosen = [list(c) for n in range(len(members), -1, -1) for c in combinations(members, n)]
                return tuple(tuple(k for m in group for k in m) for group in chosen)

    def _key(self, node: exp.Expression) -> int | None:
        if isinstance(node, exp.Anonymous) and str(node.this).upper() in GROUP_WINDOWS:
            self._bind_window(node)
            return None
        key = self._expressions.bind(node)
        if key.type.root is TypeRoot.NULL:
            key = Literal(STRING, None)
        if key not in self._keys:
            self._keys.append(key)
        return self._keys.index(key)

    def _bind_window(self, node: exp.Expression) -> None:
        name = str(node.this).upper()
        arguments = tuple(self._expressions.bind(a) for a in node.expressions)
        window = GroupWindow(name, group_window_spec(name, arguments, node), arguments, span_of(node))
        if self._window is not None and (window.name, window.arguments) != (self._window.name, self._window.arguments):
            raise error_at(
                "GROUP BY takes one window", span_of(node), "aggregate by the second one in a query around this one"
            )
        self._window = window


class GroupingPlanner:
    """Makes the nodes of a grouping, and rewrites expressions over rows to expressions over groups."""

    def __init__(self, context: BindingContext, parts: SelectParts) -> None:
        self._context = context
        self._nodes = context.nodes
        self._parts = parts
        one_group = Groups((), ((),), None, parts.syntax.span)
        self._groups = parts.groups or one_group
        self._columns: dict[Expression, ColumnRef] = {}
        self._values: dict[str, Expression] = {}
        self._set_column: ColumnRef | None = None

    def planned(self, node: PlanNode, outputs: Sequence[Expression]) -> tuple[PlanNode, list[Expression]]:
        """The groups of the node's rows, and the outputs over them.

        Raises:
            ExpressionError: an output reads a column that is neither grouped nor aggregated.
        """
        aggregates = list(dict.fromkeys(a for output in outputs for a in find(output, PendingAggregate)))
        return self.aggregated(node, aggregates), [self.over_groups(o, i) for i, o in enumerate(outputs)]

    def aggregated(
        self, node: PlanNode, aggregates: Sequence[PendingAggregate], extra_keys: Sequence[Expression] = ()
    ) -> PlanNode:
        """The node that groups; `extra_keys` come first."""
        groups, span = self._groups, self._groups.span
        keys = [*extra_keys, *groups.keys]
        planner = SubqueryPlanner(self._context)
        node, planned = planner.applied(node, [*keys, *aggregates, *self._window_time()])
        key_values, calls = (
            planned[: len(keys)],
            [p.call for p in planned[len(keys) :] if isinstance(p, PendingAggregate)],
        )
        node, positions = self._nodes.extended(node, [*key_values, *planned[len(keys) + len(aggregates) :]], span)
        if groups.window is not None:
            positions, node = self._windowed(node, positions, len(keys))
        sets = groups.sets
        if sets != (tuple(range(len(groups.keys))),) and (len(sets) > 1 or len(sets[0]) != len(groups.keys)):
            node, positions = self._expanded(node, positions, len(extra_keys))
        named = {e: n for n, e in reversed(self._parts.items) if isinstance(e, PendingAggregate)}
        names = [named.get(a) or f"{a.call.function.lower()}$" for a in aggregates]
        grouped = self._nodes.group(node, positions, calls, span, names)
        grouped = with_lifetimes(grouped, self._parts.lifetimes)
        self._record(grouped, keys, aggregates, len(positions))
        return grouped

    def _window_time(self) -> tuple[Expression, ...]:
        return () if self._groups.window is None else (self._groups.window.arguments[0],)

    def _windowed(self, node: PlanNode, positions: tuple[int, ...], keys: int) -> tuple[tuple[int, ...], PlanNode]:
        window = self._groups.window
        assert window is not None
        time = positions[-1]
        session_keys = positions[:keys] if isinstance(window.spec, SessionWindow) else ()
        schema = window_columns(node.schema, time)
        width = len(node.schema)
        hints = self._nodes.hints("window", window.span)
        windowed = WindowTableFunction(schema, hints, node, window.spec, time, keys=session_keys)
        bounds = [width, width + 1]
        if any(b.bound == "ROWTIME" for o in self._parts.outputs for b in find(o, PendingWindowBound)):
            bounds.append(width + 2)
        return (*positions[:keys], *bounds), windowed

    def _expanded(self, node: PlanNode, positions: tuple[int, ...], extra: int) -> tuple[PlanNode, tuple[int, ...]]:
        """Every row once a grouping set: keys that are not in the set are NULL, and the set's number follows."""
        groups = self._groups
        common = set.intersection(*(set(s) for s in groups.sets))
        varying = [k for k in range(len(groups.keys)) if k not in common]
        columns = identity(node.schema)
        width = len(columns)
        fields = [*node.schema.fields, *(node.schema.fields[positions[extra + k]] for k in varying)]
        fields = [replace(f, nullable=True) if i >= width else f for i, f in enumerate(fields)]
        schema = unique_fields([*fields, Field("GROUPING$SET", BIGINT, False)])
        projections = []
        for number, chosen in enumerate(groups.sets):
            copies = [
                columns[positions[extra + k]][1]
                if k in chosen
                else Literal(node.schema.types[positions[extra + k]], None)
                for k in varying
            ]
            projections.append((*(e for _, e in columns), *copies, Literal(BIGINT, number)))
        expanded = Expand(schema, self._nodes.hints("expand", groups.span), node, tuple(projections))
        moved = list(positions)
        for place, key in enumerate(varying):
            moved[extra + key] = width + place
        self._set_column = ColumnRef(BIGINT, len(moved), "GROUPING$SET")
        return expanded, (*moved, len(schema) - 1)

    def _record(
        self, grouped: PlanNode, keys: Sequence[Expression], aggregates: Sequence[PendingAggregate], width: int
    ) -> None:
        fields = grouped.schema.fields
        for place, key in enumerate(keys):
            self._columns.setdefault(key, ColumnRef(fields[place].type, place, fields[place].name))
        for place, call in enumerate(aggregates):
            entry = fields[width + place]
            self._columns[call] = ColumnRef(entry.type, width + place, entry.name)
        for place, bound in enumerate(("START", "END", "ROWTIME")):
            if self._groups.window is not None and len(keys) + place < width:
                entry = fields[len(keys) + place]
                self._values[bound] = ColumnRef(entry.type, len(keys) + place, entry.name)

    # -- outputs -------------------------------------------------------------------------------------------------------------

    def over_groups(self, output: Expression, index: int) -> Expression:
        """An expression over the rows as one over the groups; `index` is its place among the outputs."""
        return rewrite(output, lambda e: self._over_group(e, index))

    def _over_group(self, expression: Expression, index: int) -> Expression | None:
        found = self._columns.get(expression)
        if found is not None:
            return found
        match expression:
            case PendingWindowBound():
                return self._window_bound(expression)
            case PendingGrouping():
                return self._grouping(expression)
            case ColumnRef():
                raise self._not_grouped(expression, index)
            case _:
                return None

    def _window_bound(self, bound: PendingWindowBound) -> Expression:
        window = self._groups.window
        if window is None or (window.name, window.arguments) != (bound.window, bound.arguments):
            what = f"{bound.window}_{bound.bound}"
            raise error_at(
                f"{what} needs the same {bound.window}(…) in GROUP BY",
                bound.span,
                "repeat its arguments as they stand there",
            )
        if bound.bound == "PROCTIME":
            proctime = scalar("PROCTIME")
            assert proctime is not None
            return Call(bound.type, proctime.name, ())
        return self._values[bound.bound]

    def _grouping(self, call: PendingGrouping) -> Expression:
        groups = self._groups
        places = []
        for argument in call.arguments:
            if argument not in groups.keys:
                raise error_at(f"{call.function} takes only expressions of GROUP BY, this is {argument}", call.span)
            places.append(groups.keys.index(argument))
        if call.function != "GROUP_ID" and not places:
            raise error_at(f"{call.function} needs an argument", call.span, f"usage: {call.function}(column, …)")
        values = []
        for number, chosen in enumerate(groups.sets):
            if call.function == "GROUP_ID":
                values.append(sum(set(s) == set(chosen) for s in groups.sets[:number]))
            else:
                values.append(sum((p not in chosen) << (len(places) - 1 - i) for i, p in enumerate(places)))
        if self._set_column is None or len(set(values)) == 1:
            return Literal(BIGINT, values[0])
        branches = tuple(
            (Call(BOOLEAN, "=", (self._set_column, Literal(BIGINT, n))), Literal(BIGINT, v))
            for n, v in enumerate(values[:-1])
        )
        return Case(BIGINT, branches, Literal(BIGINT, values[-1]))

    def _not_grouped(self, column: ColumnRef, index: int) -> ExpressionError:
        syntax = self._parts.syntax
        span = self._parts.spans[index] if index < len(self._parts.spans) else syntax.span
        name = column.name
        roots = [i.expression for i in syntax.items if i.expression is not None and i.span == span]
        roots += [n for n in (syntax.having, syntax.qualify) if n is not None and index >= len(self._parts.spans)]
        scope = QueryScope(relation=self._parts.relation)
        for node in (n for r in roots for n in r.find_all(exp.Column)):
            if _resolves(scope, node) == column:
                span, name = span_of(node), node.sql() if node.table else node.name
                break
        grouped = "neither grouped nor aggregated" if self._parts.groups is not None else "not aggregated"
        hint = f"add it to GROUP BY, or take one value of the group: MAX({name})"
        number = next((k for k in self._groups.keys if isinstance(k, Literal) and k.type == INT), None)
        if number is not None:
            hint += f"; GROUP BY {number} groups by the constant, not by a column's position"
        return error_at(f"column '{name}' is {grouped}", span, hint)


def _resolves(scope: QueryScope, node: exp.Column) -> Expression | None:
    names = tuple(p.name for p in (node.args.get(k) for k in ("catalog", "db", "table", "this")) if p is not None)
    try:
        found = scope.resolve(names)
    except UnknownNameError:
        return None
    while not isinstance(found, ColumnRef) and found.children:
        found = found.children[0]
    return found
