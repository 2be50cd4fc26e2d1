"""Binding of what stands under `aggregate`: aggregate calls over the input rows, and output columns over the grouped rows.

`SUM(a) / COUNT(*) AS mean` gives two calls and one output expression over the row (keys…, window bounds…, call results…).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from sqlglot import exp

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import timestamp
from flowrun.frontend.sql.expressions.aggregate_calls import check_arguments, is_star, typed_call, written_arguments
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.expressions.scope import Scope, UnknownNameError
from flowrun.functions.registry import aggregate
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression


@record
class AggregateBinding:
    """Aggregates and the columns made of them.

    Attributes:
        calls: each distinct aggregate once; `name` is the output column if one is just this call, else a generated name.
        outputs: name and expression over the row (keys…, window bounds…, call results…), in the order written.
        plain: every output is exactly one call, in order: no projection is needed after the aggregation.
    """

    calls: tuple[AggregateCall, ...]
    outputs: tuple[tuple[str, Expression], ...]
    plain: bool


@record
class _GroupScope(Scope):
    """The grouped row: keys and window bounds; other columns exist only inside aggregates."""

    what: str = "the grouped row"
    columns: Schema = field(kw_only=True)

    def resolve(self, parts: tuple[str, ...]) -> Expression:
        if parts[0] not in self.schema and parts[0] in self.columns:
            message = f"column '{parts[0]}' is neither a key nor inside an aggregate"
            raise UnknownNameError(message, 0, f"add it to key_by, or take one value of the group: MAX({parts[0]})")
        return Scope.resolve(self, parts)


class AggregateBinder(ExpressionBinder):
    """Binds outputs of a grouping; collects the aggregate calls it meets. One binder serves all texts of a grouping."""

    def __init__(self, input_schema: Schema, group_schema: Schema) -> None:
        super().__init__(_GroupScope(group_schema, columns=input_schema))
        self._rows = _ArgumentBinder(Scope(input_schema))
        self._width = len(group_schema)
        self.calls: list[AggregateCall] = []

    def function(self, node: exp.Expression) -> Expression:
        """An aggregate becomes a column of the grouped row; anything else is an ordinary call."""
        if aggregate(str(node.this)) is not None:
            return self.aggregate(node, None)
        return super().function(node)

    def filtered(self, node: exp.Expression) -> Expression:
        """An aggregate with FILTER (WHERE …)."""
        call, where = node.this, node.expression
        if not isinstance(call, exp.Anonymous) or aggregate(str(call.this)) is None:
            return super().filtered(node)
        condition = where.this if isinstance(where, exp.Where) else where
        return self.aggregate(call, self._rows.boolean(condition, "the condition of FILTER"))

    def aggregate(self, node: exp.Expression, condition: Expression | None) -> Expression:
        """Reference to the result of an aggregate call; equal calls are one."""
        function = aggregate(str(node.this))
        assert function is not None
        arguments, distinct = written_arguments(node)
        star = is_star(arguments)
        check_arguments(self, function, arguments, node, distinct=distinct, star=star)
        arguments = [] if star else arguments
        bound = [self._rows.bind(a) for a in arguments]
        call = typed_call(self._rows, function, bound, arguments, node, distinct=distinct, filter=condition)
        return self._reference(call)

    def _reference(self, call: AggregateCall) -> ColumnRef:
        for position, known in enumerate(self.calls):
            if replace(known, name="") == call:
                return ColumnRef(known.type, self._width + position, known.name)
        named = replace(call, name=f"__{call.function.lower()}_{len(self.calls)}")
        self.calls.append(named)
        return ColumnRef(named.type, self._width + len(self.calls) - 1, str(call))


class _ArgumentBinder(ExpressionBinder):
    """Binds arguments and filters of aggregates, over the input rows."""

    def reject_aggregate(self, node: exp.Expression, name: str) -> None:
        """Aggregates do not nest."""
        if aggregate(name) is not None:
            self.fail(
                f"{name.upper()} stands inside another aggregate", node, "aggregate in two steps, one after the other"
            )


def group_schema(input_schema: Schema, keys: Sequence[int], bounds: Sequence[str]) -> Schema:
    """Columns that outputs may read besides aggregates: the keys, then the window bounds (TIMESTAMP(3))."""
    return Schema((*(input_schema.fields[k] for k in keys), *(Field(b, timestamp(3)) for b in bounds)))


def finished(binder: AggregateBinder, outputs: Sequence[tuple[str, Expression]]) -> AggregateBinding:
    """The binding, with calls named after the outputs that are just them."""
    width = binder._width
    names = {e.index - width: n for n, e in reversed(outputs) if isinstance(e, ColumnRef) and e.index >= width}
    calls = tuple(replace(c, name=names.get(i, c.name)) for i, c in enumerate(binder.calls))
    positions = [e.index for _, e in outputs if isinstance(e, ColumnRef)]
    plain = len(positions) == len(outputs) and positions == list(range(width, width + len(calls)))
    return AggregateBinding(calls, tuple(outputs), plain)
