"""The rule of joins that multiply rows."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.errors import Location
from flowrun.plan.joins import IntervalJoin, Join, WindowJoin
from flowrun.plan.nodes import walk_plan
from flowrun.plan.unique_keys import unique_keys
from flowrun.runners.lint.rule import LintRule, Subject, step_name

_REMEDY = (
    "say which side has one row a key: PRIMARY KEY (…) NOT ENFORCED (primary_key in YAML) on its table, or deduplicate or aggregate it by "
    "the key before the join"
)


def _find(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    for node in walk_plan(subject.written):
        if not isinstance(node, Join | WindowJoin | IntervalJoin) or node.kind.left_only:
            continue
        left, right = set(node.left_keys), set(node.right_keys)
        if isinstance(node, IntervalJoin) and left:
            continue
        if isinstance(node, WindowJoin):
            left, right = left | set(node.left_window), right | set(node.right_window)
        if any(key <= left for key in unique_keys(node.left, widened=True)) or any(
            key <= right for key in unique_keys(node.right, widened=True)
        ):
            continue
        if not node.left_keys:
            what = f"{step_name(node)} joins every row with every row: its condition has no equality"
            yield (
                what,
                "add an equality to ON, or say CROSS JOIN where a product is meant, and ignore the rule there",
                node.hints.location,
            )
            continue
        what = f"{step_name(node)} may multiply rows: neither side is known to have one row for each {_keys(node)}"
        yield what, _REMEDY, node.hints.location


def _keys(node: Join | WindowJoin | IntervalJoin) -> str:
    pairs = zip(node.left_keys, node.right_keys, strict=True)
    names = [(node.left.schema.names[left], node.right.schema.names[right]) for left, right in pairs]
    return ", ".join(left if left == right else f"{left} = {right}" for left, right in names)


RULE = LintRule(
    "multiplying-join",
    "Neither side of a join has one row a key.",
    "Where several rows on the left and several on the right have the same key, a join gives each pair of them, and sums behind it count "
    "rows more than once. Known are primary keys of tables, groups, deduplications and rankings. Interval joins with a key are not told: "
    "streams of events rarely have keys of their own, and the interval says which belong together.",
    _find,
)
