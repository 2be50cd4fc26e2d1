"""A kind of node is known to whoever must know it, and to nobody else: to all others it is what it says of itself."""

from __future__ import annotations

import ast
import typing
from dataclasses import fields
from pathlib import Path

import pytest

import flowrun
from flowrun.api.changelog import ChangelogMode
from flowrun.core.semantics import SortKey
from flowrun.frontend.sql.expressions.from_text import bind_expression
from flowrun.plan import changelog_nodes, conflicts, joins, matching, nodes, relational, windows
from flowrun.plan.changelog import check_changelogs, node_mode
from flowrun.plan.description import (
    InsertsOnly,
    Meaning,
    Passed,
    Rows,
    expressions,
    input_node,
    node,
    node_description,
    node_kinds,
    parameter,
    parts,
    positions,
)
from flowrun.plan.explain import plan_text
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Union, walk_plan
from flowrun.plan.relational import Values
from flowrun.plan.rewrites import optimise
from flowrun.plan.traits import TraitIndex
from flowrun.plan.unique_keys import unique_keys
from tests.plan.plans import calc, scan
from tests.plan.plans import plan as plan_of

PACKAGE = Path(flowrun.__file__).parent
KINDS = [k for k in node_kinds() if k.__module__.startswith("flowrun.") and k.__name__[0] != "_" and k is not PlanNode]

KNOW_TEMPORAL_SORT = {
    "plan/relational.py": "it is defined there",
    "frontend/sql/queries/order_and_limit.py": "ORDER BY makes it",
    "frontend/sql/queries/subqueries/dependent_joins.py": "the rows of a subquery have no order: it goes",
    "plan/recognition/recognition.py": "finds its time domain, or what is wrong with its order",
    "lowering/relational.py": "which function lowers it",
    "lowering/ranking.py": "its operator",
    "spark/translation.py": "which function translates it",
    "spark/native/ranking.py": "its DataFrame",
    "spark/output/connectors.py": "whether a sink's rows have an order that must be kept",
    "spark/time_spread.py": "its rows have the event times of the rows that they come from",
}
"""Why each module that names `TemporalSort` must know it: what stands for all kinds of nodes here."""


@pytest.mark.exhaustive
def test_only_those_name_a_node_that_must_know_it() -> None:
    named = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if _names(p, "TemporalSort")}
    assert named == KNOW_TEMPORAL_SORT.keys()


def _names(path: Path, name: str) -> bool:
    nodes_of = {ast.Name: "id", ast.Attribute: "attr", ast.ClassDef: "name"}
    found = ((e, nodes_of.get(type(e))) for e in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return any(key is not None and getattr(e, key) == name for e, key in found)


@node(
    output=(Passed("input"),),
    rows=Rows.EACH,
    keeps_rows=True,
    inserts_only=InsertsOnly("shuffling", hint="leave it out"),
)
class Shuffle(PlanNode):
    """The rows of each key in an order of their own: a kind of node that no module knows."""

    input: PlanNode = input_node()
    keys: tuple[int, ...] = positions("input", groups=True)
    order: tuple[SortKey, ...] = parts("input")
    weight: Expression = expressions("input")
    seed: int = parameter(default=0)


def _shuffle(input: PlanNode, weight: str = "amount * (1 + 1)", seed: int = 0) -> Shuffle:
    schema = input.schema
    order = (SortKey(schema.index("ts")),)
    return Shuffle(schema, NodeHints(), input, (schema.index("user"),), order, bind_expression(weight, schema), seed)


def _optimised(node: PlanNode) -> Plan:
    return optimise(plan_of(node))


def _shuffles(plan: Plan) -> list[Shuffle]:
    return [n for n in walk_plan(plan) if isinstance(n, Shuffle)]


def test_columns_that_a_new_node_does_not_use_are_not_read() -> None:
    (made,) = _shuffles(_optimised(calc(_shuffle(scan()), "id")))
    assert made.schema.names == ("id", "user", "amount", "ts")
    assert made.input.schema.names == made.schema.names
    assert (made.keys, made.order) == ((1,), (SortKey(3),))
    assert str(made.weight) == str(bind_expression("amount * 2", scan().schema))


def test_rows_of_other_keys_are_left_out_below_a_new_node() -> None:
    plan = _optimised(calc(_shuffle(scan()), where="user = 'a' AND status = 'x'"))
    (made,) = _shuffles(plan)
    assert isinstance(made.input, Calc)
    assert str(made.input.condition) == "(user = 'a')"
    (above,) = [n for n in walk_plan(plan) if isinstance(n, Calc) and n.input is made]
    assert str(above.condition) == "(status = 'x')"


def test_equal_new_nodes_become_one_and_others_do_not() -> None:
    read = scan()

    def both(one: PlanNode, other: PlanNode) -> Plan:
        return _optimised(Union(one.schema, NodeHints(), (one, other)))

    assert len(_shuffles(both(_shuffle(read), _shuffle(read)))) == 1
    assert len(_shuffles(both(_shuffle(read), _shuffle(read, seed=1)))) == 2
    assert len(_shuffles(both(_shuffle(read, "RAND()"), _shuffle(read, "RAND()")))) == 2


def test_a_new_node_over_nothing_is_nothing() -> None:
    plan = _optimised(_shuffle(calc(scan(), where="FALSE")))
    assert [type(n).__name__ for n in walk_plan(plan)] == ["Values", "Sink"]
    assert isinstance(plan.sinks[0].input, Values)


def test_a_new_node_passes_on_keys_times_and_changes_as_it_passes_on_rows() -> None:
    read = scan(event_time=True)
    made = _shuffle(read)
    traits = TraitIndex()
    assert traits[made] == traits[read]
    assert unique_keys(made) == unique_keys(read)
    assert node_mode(made, [ChangelogMode.APPEND]) is ChangelogMode.APPEND
    assert check_changelogs(plan_of(made)) == []


def test_a_new_node_is_explained_by_its_columns() -> None:
    lines = plan_text(plan_of(_shuffle(scan()))).splitlines()
    shown = [line.strip(" │") for line in lines]
    assert {"keys: user", "order: ts"} <= set(shown)
    assert any(line.startswith("weight: ") for line in shown)


_SPOKEN = (Expression, AggregateCall, SortKey, PlanNode)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_what_a_field_is_fits_its_type(kind: type) -> None:
    """A field with nodes, expressions or sort keys says so, so that nothing derived passes it over."""
    scope = {
        n: v
        for m in (nodes, windows, relational, joins, matching, changelog_nodes, conflicts)
        for n, v in vars(m).items()
    }
    described = node_description(kind).fields
    types = typing.get_type_hints(kind, scope)
    for entry in fields(kind):  # type: ignore[arg-type]
        meaning, held = described[entry.name].meaning, _classes_in(types[entry.name])
        if any(issubclass(c, PlanNode) for c in held):
            assert meaning in (Meaning.INPUT, Meaning.INPUTS), entry.name
        elif any(issubclass(c, Expression) for c in held):
            assert meaning in (Meaning.EXPRESSIONS, Meaning.PATTERN), entry.name
        elif any(issubclass(c, _SPOKEN) for c in held):
            assert meaning is Meaning.PARTS, entry.name
        if meaning is Meaning.POSITIONS:
            assert int in held, entry.name


def _classes_in(hint: object) -> set[type]:
    arguments = typing.get_args(hint)
    return {hint} if not arguments and isinstance(hint, type) else {c for a in arguments for c in _classes_in(a)}
