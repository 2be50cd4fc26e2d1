"""The small nodes that recognition puts around those it makes: Calcs that add, drop and reorder columns, and their hints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flowrun.core.schema import Field, Schema
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.nodes import Calc, NodeHints, PlanNode


def auxiliary(hints: NodeHints, part: str) -> NodeHints:
    """Hints of a stateless node that recognition adds beside the user's. Without a stable id, as the same step may be added twice."""
    return NodeHints(
        name=f"{hints.name}.{part}" if hints.name else None,
        slot_sharing_group=hints.slot_sharing_group,
        chaining=hints.chaining,
        location=hints.location,
    )


def stateful_part(hints: NodeHints, part: str) -> NodeHints:
    """Hints of a stateful node that does a part of the user's: its state is found again by the user's node and `part`."""
    place = f"{hints.stable_id}:{part}" if hints.stable_id else None
    return replace(auxiliary(hints, part), place=place, parallelism=hints.parallelism)


def column(schema: Schema, index: int) -> ColumnRef:
    """A reference to a column of a schema."""
    return ColumnRef(schema.types[index], index, schema.names[index])


def columns(schema: Schema) -> tuple[ColumnRef, ...]:
    """References to all columns, in order."""
    return tuple(column(schema, i) for i in range(len(schema)))


def unique_name(name: str, taken: Iterable[str]) -> str:
    """The name, with underscores behind it if it is taken.

    >>> unique_name("a", ["a", "b"])
    'a_'
    """
    used = set(taken)
    while name in used:
        name += "_"
    return name


def written_name(node: PlanNode, index: int) -> str:
    """A column as the query says it: what a front end computed for it below, if it made the column up (`SORT$1`)."""
    name = node.schema.names[index]
    if "$" in name and isinstance(node, Calc):
        computed = node.projections[index]
        return written_name(node.input, computed.index) if isinstance(computed, ColumnRef) else str(computed)
    return name


def filtered(node: PlanNode, parts: Sequence[Expression], hints: NodeHints) -> PlanNode:
    """The rows of a node for which all conditions hold; the node itself if there are none."""
    condition = conjunction(parts)
    if condition is None:
        return node
    return Calc(node.schema, hints, node, columns(node.schema), condition)


def renamed(node: PlanNode, schema: Schema, positions: Sequence[int], hints: NodeHints) -> PlanNode:
    """The columns of a node at `positions` under the names of `schema`; the node itself if that changes nothing."""
    if tuple(positions) == tuple(range(len(node.schema))) and schema.names == node.schema.names:
        return node
    return Calc(schema, hints, node, tuple(column(node.schema, p) for p in positions))


@dataclass(slots=True)
class Extension:
    """A node's columns with computed ones behind them."""

    node: PlanNode
    hints: NodeHints
    added: list[Expression]

    @classmethod
    def of(cls, node: PlanNode, hints: NodeHints) -> Extension:
        """Nothing is added yet."""
        return cls(node, hints, [])

    def position(self, expression: Expression) -> int:
        """Where the expression is a column: as it is, or among those added."""
        if isinstance(expression, ColumnRef):
            return expression.index
        if expression not in self.added:
            self.added.append(expression)
        return len(self.node.schema) + self.added.index(expression)

    def build(self) -> PlanNode:
        """The node itself, or a Calc over it."""
        if not self.added:
            return self.node
        schema = self.node.schema
        fields = list(schema.fields)
        for expression in self.added:
            name = unique_name(f"${len(fields)}", (f.name for f in fields))
            fields.append(Field(name, expression.type))
        return Calc(Schema(tuple(fields)), self.hints, self.node, (*columns(schema), *self.added))
