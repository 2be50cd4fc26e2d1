"""The stages of a step: names and hints of the nodes that its parts become."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.types import BOOLEAN
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.hints import part_hints
from flowrun.frontend.yaml.queries.step_queries import SET_PARTS
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import Call, ColumnRef, Expression
from flowrun.plan.nodes import Calc, NodeHints, PlanNode

_STATEFUL = (
    "window",
    "process",
    "aggregate",
    "top_n",
    "deduplicate",
    "over",
    "distinct",
    "match_recognize",
    "join",
    *SET_PARTS,
)
WITH_LIFETIME = ("join", "aggregate", "distinct", "deduplicate", "top_n")
"""Parts whose state may have a time to live of its own."""
_OTHERS = (
    ("limit", "order_by"),
    ("order_by", "order_by"),
    ("split", "split"),
    ("async", "async"),
    ("flat_map", "map"),
    ("map", "map"),
    ("select", "select"),
    ("filter", "filter"),
)


class Stages:
    """Hints of the nodes of one step: the main node has the step's own, the others derived ones.

    Attributes:
        name: of the step.
        input: how queries over the step's rows name them: the name of its input, or the step's own if it has several.
    """

    def __init__(self, name: str, section: Section, hints: NodeHints) -> None:
        self.name = name
        self.input = section.text("from") or name
        self._main = _main_part(section)
        self._hints = hints
        own, join = section.integer("state_ttl"), section.section("join")
        second = join.integer("state_ttl") if join is not None and join.has("state_ttl") else own
        self._lifetimes = (own, second)

    def hints(self, part: str) -> NodeHints:
        """Hints of the node that does `part` of the step."""
        hints = self._hints if part == self._main else part_hints(self._hints, part)
        if part not in WITH_LIFETIME or self._lifetimes == (None, None):
            return hints
        return replace(hints, state_ttl_ms=self._lifetimes if part == "join" else self._lifetimes[:1])


def _main_part(section: Section) -> str:
    """The part that carries the step's uid and name: the one with state if there is one, else the last."""
    if section.has("sql") and not any(section.has(s) for s in _STATEFUL):
        return "sql"
    for stateful in _STATEFUL:
        if section.has(stateful):
            return stateful
    return next((part for key, part in _OTHERS if section.has(key)), "union")


def filtered(node: PlanNode, condition: Expression, hints: NodeHints) -> PlanNode:
    """The rows for which the condition is true."""
    identity = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    return Calc(schema=node.schema, hints=hints, input=node, projections=identity, condition=condition)


def present_only(
    section: Section, node: PlanNode, keys: tuple[int, ...], stages: Stages
) -> tuple[PlanNode, tuple[int, ...]]:
    """The rows without those that `null_keys` drops, and the positions of their keys."""
    present = conjunction(_is_not_null(node, k) for k in keys)
    if section.text("null_keys") == "drop" and present is not None:
        node = filtered(node, present, stages.hints("null_keys"))
    return node, keys


def _is_not_null(node: PlanNode, column: int) -> Expression:
    field = node.schema.fields[column]
    return Call(BOOLEAN, "IS NOT NULL", (ColumnRef(field.type, column, field.name),))
