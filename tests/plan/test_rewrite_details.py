"""Rules where it matters what stands around a node: names of shared nodes, sessions, collections, versions, limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind
from flowrun.core.types import BIGINT, DOUBLE, timestamp
from flowrun.frontend.sql.expressions.from_text import bind_predicate
from flowrun.plan.explain import plan_text
from flowrun.plan.expressions import ColumnRef, columns_used
from flowrun.plan.joins import IntervalJoin, Join, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Calc, NodeHints, Scan, Union, WindowAggregate, walk_plan
from flowrun.plan.relational import Rank, Unnest, WindowTableFunction, window_columns
from flowrun.plan.rewrites import optimise
from flowrun.plan.rewrites.conditions import TwoInputs
from flowrun.plan.rewrites.pushing import implied_on_sides, passed_columns, places_below, push_filters
from flowrun.plan.rewrites.sharing import share_equal_nodes
from flowrun.plan.windows import CountWindow, EvictorSpec, GlobalWindow, SessionWindow, TriggerSpec
from tests.plan.plans import calc, plan, scan
from tests.plan.recognition.queries import planned


def test_equal_nodes_become_one_under_the_names_that_their_readers_know() -> None:
    source = scan()
    one, other = calc(source, "id", "user"), calc(source, "id AS x", "user AS y")
    union = Union(schema=other.schema, hints=NodeHints(name="u"), members=(other, other))
    shared = share_equal_nodes(plan(one, union))
    nodes = list(walk_plan(shared))
    assert [type(n).__name__ for n in nodes] == ["Scan", "Calc", "Sink", "Calc", "Union", "Sink"]
    (members,) = {n.members for n in nodes if isinstance(n, Union)}
    assert members[0] is members[1]
    assert members[0].schema.names == ("x", "y")


def test_a_session_without_keys_needs_all_its_rows() -> None:
    source = scan(event_time=True)
    time = source.schema.index("ts")
    schema = window_columns(source.schema, time)
    for keys, passed in (((), set()), ((1,), {1})):
        node = WindowTableFunction(schema, NodeHints(), source, SessionWindow(1000), time, keys=keys)
        assert set(passed_columns(node)) == passed


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, True),
        ({"window": SessionWindow(1000)}, True),
        ({"window": CountWindow(3, 3)}, False),  # which rows are counted together depends on all of them
        ({"window": GlobalWindow()}, False),
        ({"trigger": TriggerSpec(count=3)}, False),
        ({"evictor": EvictorSpec(count=3)}, False),
        ({"late_tag": "late"}, False),  # the side output has other rows, and no condition
        ({"late_tag": "late", "evictor": EvictorSpec(count=3), "trigger": TriggerSpec(count=3)}, False),
    ],
)
def test_keys_are_asked_below_a_window_whose_firings_depend_on_its_own_rows_only(
    change: dict[str, Any], passed: bool
) -> None:
    text = (
        "SELECT user_id, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY user_id, window_start, window_end"
    )
    (window,) = (n for n in walk_plan(planned(text)) if isinstance(n, WindowAggregate))
    (key,) = window.keys
    assert passed_columns(replace(window, **change)) == ({0: key} if passed else {})


def test_a_collection_that_does_not_come_out_cannot_be_asked_below() -> None:
    source = scan()
    node = Unnest(source.schema, NodeHints(), source, collection=0, keeps_collection=False)
    assert 0 not in passed_columns(node)
    assert 1 in passed_columns(node)


def test_versions_of_a_temporal_join_are_not_filtered_by_what_they_hold() -> None:
    """Without a version an older one would be found."""
    text = plan_text(
        optimise(
            planned(
                "SELECT o.id, r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency "
                "WHERE r.rate > 2.5 AND o.amount > 3"
            )
        )
    )
    join = text.index("TemporalJoin")
    assert text.index("(rate > ") < join < text.index("(amount > 3)")


def test_a_condition_goes_to_both_sides_of_a_join_on_its_keys() -> None:
    text = plan_text(
        optimise(
            planned(
                "SELECT * FROM (SELECT o.user_id AS u, c.url FROM orders o JOIN clicks c ON o.user_id = c.user_id) WHERE u = 'a'"
            )
        )
    )
    assert text.count("pushed: user_id = 'a'") == 2


WINDOW = {"s": timestamp(3), "e": timestamp(3)}
LEFT = Schema.of(k=BIGINT, a=BIGINT, f=DOUBLE, **WINDOW)
RIGHT = Schema.of(b=BIGINT, k2=BIGINT, f2=DOUBLE, **{f"{n}2": t for n, t in WINDOW.items()})


def joined(kind: JoinKind, of: type[TwoInputs] = Join) -> TwoInputs:
    """`left JOIN right ON k = k2 AND f = f2`; a join of windows on `s = s2 AND e = e2`, too."""
    left, right = scan(LEFT, name="left"), scan(RIGHT, name="right")
    schema = LEFT if kind.left_only else Schema((*LEFT.fields, *RIGHT.fields))
    common: Any = (schema, NodeHints(), left, right, kind, (0, 2), (1, 2))
    if of is Join:
        return Join(*common)
    if of is WindowJoin:
        return WindowJoin(*common, left_window=(3, 4), right_window=(3, 4))
    if of is IntervalJoin:
        return IntervalJoin(*common, left_time=3, right_time=3, lower_ms=0, upper_ms=0)
    return TemporalJoin(*common, left_time=3, right_time=3)


def places(node: TwoInputs, where: str) -> str:
    """The columns that a condition is tested on before the join."""
    found = places_below(node, bind_predicate(where, node.schema))
    return ", ".join(node.inputs[i].schema.names[c] for i, over in found for c in sorted(columns_used(over)))


@pytest.mark.parametrize(
    ("kind", "of_left", "of_right"),
    [
        (JoinKind.INNER, ("a", "k, k2"), ("b", "k2, k")),
        (JoinKind.LEFT, ("a", "k, k2"), ("", "")),
        (JoinKind.RIGHT, ("", ""), ("b", "k2, k")),
        (JoinKind.FULL, ("", ""), ("", "")),
        (JoinKind.SEMI, ("a", "k, k2"), None),
        (JoinKind.ANTI, ("a", "k, k2"), None),
    ],
)
@pytest.mark.parametrize("of", [Join, WindowJoin, IntervalJoin])
def test_a_condition_goes_to_its_side_of_a_join_and_one_on_keys_to_both_unless_rows_come_out_without_a_match(
    kind: JoinKind, of_left: tuple[str, str], of_right: tuple[str, str] | None, of: type[TwoInputs]
) -> None:
    node = joined(kind, of)
    assert (places(node, "a > 5"), places(node, "k > 5")) == of_left
    if of_right is not None:
        assert (places(node, "b > 5"), places(node, "k2 > 5")) == of_right
        assert places(node, "a > b") == ""


@pytest.mark.parametrize(
    ("of", "where", "tested"),
    [
        (Join, "f > 5", "f"),  # 0.0 = -0.0, of which some conditions are not true of both
        (Join, "f2 > 5", "f2"),
        (Join, "k = a", "k, a"),
        (Join, "s = e", "s, e"),
        (WindowJoin, "s = e", "s, e, s2, e2"),
        (WindowJoin, "s2 = e2", "s2, e2, s, e"),
        (IntervalJoin, "s = e", "s, e"),
        (TemporalJoin, "a > 5", "a"),
        (TemporalJoin, "k > 5", "k"),
        (TemporalJoin, "b > 5", ""),
        (TemporalJoin, "k2 > 5", ""),
    ],
)
def test_the_other_side_of_a_join_is_asked_for_what_is_equal_to_the_bit_and_never_for_versions(
    of: type[TwoInputs], where: str, tested: str
) -> None:
    assert places(joined(JoinKind.INNER, of), where) == tested


@pytest.mark.parametrize(
    ("kind", "of", "where", "tested"),
    [
        (JoinKind.INNER, Join, "(a = 1 AND b = 2) OR (a = 3 AND b = 4)", "a, b"),
        (JoinKind.INNER, Join, "(a = 1 AND b = 2) OR a = 3", "a"),
        (JoinKind.INNER, Join, "(a = 1 AND b = 2) OR b = 3", "b"),
        (JoinKind.INNER, Join, "(k = 1 AND b = 2) OR (k = 3 AND b = 4)", "k, k2, b"),
        (JoinKind.INNER, Join, "a = 1 OR b = 3", ""),
        (JoinKind.LEFT, Join, "(a = 1 AND b = 2) OR (a = 3 AND b = 4)", "a"),
        (JoinKind.RIGHT, Join, "(a = 1 AND b = 2) OR (a = 3 AND b = 4)", "b"),
        (JoinKind.INNER, TemporalJoin, "(a = 1 AND b = 2) OR (a = 3 AND b = 4)", "a"),
    ],
)
def test_each_side_of_a_join_is_asked_for_what_a_disjunction_implies_of_it(
    kind: JoinKind, of: type[TwoInputs], where: str, tested: str
) -> None:
    node = joined(kind, of)
    found = implied_on_sides(node, bind_predicate(where, node.schema))
    assert ", ".join(node.inputs[i].schema.names[c] for i, o in found for c in sorted(columns_used(o))) == tested


def test_filters_pass_a_calc_that_must_stay() -> None:
    below = calc(scan(), "id", "RAND() AS dice")
    pushed = push_filters(plan(calc(below, "dice AS a", "dice AS b", where="id > 5")))
    (*_, lowest) = [n for n in walk_plan(pushed) if isinstance(n, Calc) and n.condition is not None]
    assert isinstance(lowest.input, Scan)


def test_a_limit_stays_above_what_is_random() -> None:
    plan_ = optimise(planned("SELECT RAND() AS r, id + 1 AS next FROM orders LIMIT 5"))
    (rank,) = [n for n in walk_plan(plan_) if isinstance(n, Rank)]
    assert isinstance(rank.input, Calc)


def test_a_rank_below_a_projection_is_read_from_where_it_is() -> None:
    text = """
    SELECT i, amt, rn FROM (
      SELECT *, ROW_NUMBER() OVER (ORDER BY amt) AS rn
      FROM (SELECT amount AS amt, id AS i FROM (SELECT id, amount FROM orders ORDER BY amount LIMIT 10))
    ) WHERE rn <= 3"""
    reading = [n for n in walk_plan(optimise(planned(text))) if isinstance(n, Calc) and "rn" in n.schema.names]
    assert reading
    for each in reading:
        (rank,) = (p for p in each.projections if isinstance(p, ColumnRef) and p.name == "rn")
        assert each.input.schema.names[rank.index] == "rn"
