"""On which side of a two-input node conditions may be tested, and over which columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowrun.core.semantics import JoinKind
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import ColumnRef, Expression, columns_used, remap_columns
from flowrun.plan.joins import IntervalJoin, Join, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Calc, NodeHints, PlanNode

TwoInputs = Join | WindowJoin | IntervalJoin | TemporalJoin
"""Nodes with two inputs whose output begins with the left one's columns."""

LEFT_FILTERED = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
"""Joins of which a condition on left columns of the result may as well be tested on the left input."""
RIGHT_FILTERED = (JoinKind.INNER, JoinKind.RIGHT)
"""The same of the right side."""
RIGHT_MATCHES_ONLY = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
"""Joins to which a right row matters only if a left row matches it."""
LEFT_MATCHES_ONLY = (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI)
"""Joins to which a left row matters only if a right row matches it."""


def key_pairs(node: TwoInputs) -> tuple[tuple[int, int], ...]:
    """Columns of the left and right input that are equal in every match; of windows, too. Not floating point: 0.0 = -0.0."""
    pairs = list(zip(node.left_keys, node.right_keys, strict=True))
    if isinstance(node, WindowJoin):
        pairs += list(zip(node.left_window, node.right_window, strict=True))
    return tuple((a, b) for a, b in pairs if not node.left.schema.types[a].is_approximate)


def moved(part: Expression, columns: Mapping[int, int]) -> Expression | None:
    """The condition over other columns; None if it reads one that is not among them."""
    used = columns_used(part)
    return remap_columns(part, {c: columns[c] for c in used}) if used <= columns.keys() else None


def filtering_calc(node: PlanNode, parts: Sequence[Expression], hints: NodeHints) -> Calc:
    """The rows of a node for which all parts hold. It takes the place of its input, so that it joins the task of the rows it filters."""
    own = NodeHints(
        name=f"{hints.name}.filter" if hints.name else None,
        parallelism=node.hints.parallelism,
        slot_sharing_group=node.hints.slot_sharing_group,
        location=hints.location,
    )
    identity = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    return Calc(schema=node.schema, hints=own, input=node, projections=identity, condition=conjunction(parts))
