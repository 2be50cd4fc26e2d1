"""The rule that spreads aggregates over distinct values of one key over several subtasks."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, BOOLEAN, INT
from flowrun.functions.operators.buckets import BUCKET
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import AggregateCall, Call, Case, Cast, ColumnRef, Expression, Literal
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode
from flowrun.plan.relational import Expand, GroupAggregate
from flowrun.plan.rewrites.traversal import map_plan

_SPLITTABLE = ("COUNT", "SUM", "MIN", "MAX", "AVG")
_EXTREMES = ("MIN", "MAX")


def split_distinct_aggregates(plan: Plan) -> Plan:
    """With `split_distinct` (`table.optimizer.distinct-agg.split.enabled`) a group aggregation with DISTINCT becomes two: one by the keys
    and a bucket of the distinct value, and one by the keys over its results. Several distinct arguments make several copies of each
    row, one a bucket, as in Flink.

    Only if all aggregates can be computed so: COUNT, SUM, MIN, MAX, and AVG of integers.
    """
    if not plan.settings.split_distinct:
        return plan
    buckets = plan.settings.split_distinct_buckets

    def split(node: PlanNode) -> PlanNode:
        return _Split(node, buckets).build() if isinstance(node, GroupAggregate) and _can_split(node) else node

    return map_plan(plan, split)


def _can_split(node: GroupAggregate) -> bool:
    return any(_is_distinct(c) for c in node.aggregates) and all(_splittable(c) for c in node.aggregates)


def _is_distinct(call: AggregateCall) -> bool:
    return call.distinct and call.function not in _EXTREMES  # the least of different values is the least of all


def _splittable(call: AggregateCall) -> bool:
    if call.function not in _SPLITTABLE or call.reference is not None or len(call.arguments) > 1:
        return False
    expressions = [*call.arguments, *([] if call.filter is None else [call.filter])]
    if not all(is_deterministic(e) for e in expressions):
        return False
    if _is_distinct(call) and call.arguments[0].type.is_nested:
        return False
    return call.function != "AVG" or call.arguments[0].type.is_integer


@record
class _Parts:
    """Calls of the first level, and what their results merge to: SUM, MIN or MAX a call."""

    calls: tuple[AggregateCall, ...]
    merges: tuple[str, ...]


class _Split:
    """Builds the two levels of one aggregation."""

    def __init__(self, node: GroupAggregate, buckets: int) -> None:
        self._node = node
        self._buckets = buckets
        self._values = list(dict.fromkeys(c.arguments[0] for c in node.aggregates if _is_distinct(c)))
        self._width = len(node.input.schema)

    def build(self) -> PlanNode:
        """Rows in buckets, the first level, the second, and averages from sums and counts."""
        node = self._node
        spread = self._spread()
        parts = [self._parts(call) for call in node.aggregates]
        first = self._first(spread, parts)
        return self._finished(self._second(first, parts), parts)

    def _spread(self) -> PlanNode:
        """The input with a bucket for each distinct argument behind its columns; of several, one is not NULL, and a number says which."""
        source = self._node.input
        passed = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(source.schema))
        buckets = [
            Call(INT, BUCKET, (value, Literal(INT, self._buckets))) for value in self._values
        ]  # NULL counts in none, and is a bucket of its own
        fields = [*source.schema.fields, *(Field(self._name(f"$bucket{i}"), INT) for i in range(len(buckets)))]
        hints = self._hints("buckets", source.hints.parallelism)
        if len(buckets) == 1:
            return Calc(Schema(tuple(fields)), hints, source, (*passed, *buckets))
        fields.append(Field(self._name("$copy"), INT))
        nothing = Literal(INT, None)
        copies = tuple(
            (*passed, *(b if i == copy else nothing for i, b in enumerate(buckets)), Literal(INT, copy))
            for copy in range(len(buckets))
        )
        return Expand(Schema(tuple(fields)), hints, source, copies)

    def _name(self, name: str) -> str:
        while name in self._node.input.schema:
            name += "_"
        return name

    def _hints(self, part: str, parallelism: int | None) -> NodeHints:
        hints = self._node.hints
        return NodeHints(
            name=f"{hints.name}.{part}" if hints.name else None,
            parallelism=parallelism,
            slot_sharing_group=hints.slot_sharing_group,
            chaining=hints.chaining,
            location=hints.location,
            state_ttl_ms=hints.state_ttl_ms,
        )

    def _parts(self, call: AggregateCall) -> _Parts:
        """What the first level computes for a call, on the copy of the rows that is in buckets of its values."""
        copy = self._values.index(call.arguments[0]) if _is_distinct(call) else 0
        filter_ = call.filter
        if len(self._values) > 1:
            column = ColumnRef(INT, self._width + len(self._values), "$copy")
            own = Call(BOOLEAN, "=", (column, Literal(INT, copy)))
            filter_ = conjunction((own, *conjuncts(call.filter)))
        base = replace(call, filter=filter_)
        if call.function == "AVG":
            wide = tuple(a if a.type == BIGINT else Cast(BIGINT, a) for a in call.arguments)
            total = replace(base, function="SUM", arguments=wide, type=BIGINT)
            count = replace(base, function="COUNT", type=BIGINT)
            return _Parts((total, count), ("SUM", "SUM"))
        return _Parts((base,), (call.function if call.function in _EXTREMES else "SUM",))

    def _first(self, spread: PlanNode, parts: list[_Parts]) -> GroupAggregate:
        node = self._node
        keys = (*node.keys, *range(self._width, len(spread.schema)))
        calls = tuple(replace(c, name=f"$part{i}_{j}") for i, own in enumerate(parts) for j, c in enumerate(own.calls))
        fields = [*(spread.schema.fields[k] for k in keys), *(_field(c) for c in calls)]
        hints = self._hints("partial", node.hints.parallelism)
        if node.hints.stable_id:
            hints = replace(hints, place=f"{node.hints.stable_id}:partial")
        return GroupAggregate(Schema(_distinctly_named(fields)), hints, spread, keys, calls)

    def _second(self, first: GroupAggregate, parts: list[_Parts]) -> GroupAggregate:
        """The whole of each call; of an average, its sum and count."""
        node = self._node
        merges = [m for own in parts for m in own.merges]
        calls = []
        for number, (part, merge) in enumerate(zip(first.aggregates, merges, strict=True)):
            column = len(first.keys) + number
            reference = ColumnRef(part.type, column, first.schema.names[column])
            calls.append(AggregateCall(merge, (reference,), part.type, f"$whole{number}"))
        keys = tuple(range(len(node.keys)))
        fields = [*node.schema.fields[: len(node.keys)], *(Field(c.name, c.type) for c in calls)]
        return GroupAggregate(Schema(_distinctly_named(fields)), node.hints, first, keys, tuple(calls))

    def _finished(self, second: GroupAggregate, parts: list[_Parts]) -> PlanNode:
        node = self._node
        if all(len(own.calls) == 1 for own in parts):
            names = [c.name for c in node.aggregates]
            calls = tuple(replace(c, name=n) for c, n in zip(second.aggregates, names, strict=True))
            return replace(second, schema=node.schema, aggregates=calls)
        columns = [ColumnRef(f.type, i, f.name) for i, f in enumerate(second.schema)]
        projections: list[Expression] = list(columns[: len(node.keys)])
        position = len(node.keys)
        for call, own in zip(node.aggregates, parts, strict=True):
            wholes = columns[position : position + len(own.calls)]
            projections.append(wholes[0] if len(wholes) == 1 else _average(call, *wholes))
            position += len(own.calls)
        hints = self._hints("averages", node.hints.parallelism)
        return Calc(node.schema, hints, second, tuple(projections))


def _average(call: AggregateCall, total: ColumnRef, count: ColumnRef) -> Expression:
    quotient: Expression = Call(BIGINT, "/", (total, count))
    if call.type != BIGINT:
        quotient = Cast(call.type, quotient)
    empty = Call(BOOLEAN, "=", (count, Literal(BIGINT, 0)))
    return Case(call.type, ((empty, Literal(call.type, None)),), quotient)


def _field(call: AggregateCall) -> Field:
    return Field(call.name, call.type, nullable=call.function != "COUNT")


def _distinctly_named(fields: list[Field]) -> tuple[Field, ...]:
    """Key columns of the plan keep their names; the rule's own give way."""
    taken: set[str] = set()
    unique = []
    for field in fields:
        name = field.name
        while name in taken:
            name += "_"
        taken.add(name)
        unique.append(replace(field, name=name))
    return tuple(unique)
