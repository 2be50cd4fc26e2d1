"""Rules where it matters what stands around a node: names of shared nodes, sessions, collections, versions, limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowrun.plan.explain import plan_text
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import (
    Calc,
    CountWindow,
    EvictorSpec,
    GlobalWindow,
    NodeHints,
    Scan,
    SessionWindow,
    TriggerSpec,
    Union,
    WindowAggregate,
    walk_plan,
)
from flowrun.plan.relational import Rank, Unnest, WindowTableFunction, window_columns
from flowrun.plan.rewrites import optimise
from flowrun.plan.rewrites.pushing import passed_columns, push_filters
from flowrun.plan.rewrites.sharing import share_equal_nodes
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
