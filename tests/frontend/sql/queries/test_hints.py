"""Hints behind SELECT: times to live of state reach the nodes that keep it; what means nothing is said."""

from __future__ import annotations

import pytest

from flowrun.plan.explain import plan_text
from flowrun.plan.joins import Join
from flowrun.plan.nodes import PlanNode, walk_plan
from flowrun.plan.relational import GroupAggregate
from tests.frontend.sql.script.scripts import ORDERS, lines, load, plan_of

_MORE = ORDERS.replace("orders", "more")
_DAY, _HOUR = 86_400_000, 3_600_000


def lifetimes(query: str) -> list[tuple[type[PlanNode], tuple[int | None, ...]]]:
    """The nodes of a query that keep something, with how long they do."""
    nodes = walk_plan(plan_of(ORDERS + _MORE + query))
    return [(type(n), n.hints.state_ttl_ms) for n in nodes if isinstance(n, GroupAggregate | Join)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT /*+ STATE_TTL('orders' = '1d') */ buyer, COUNT(*) FROM orders GROUP BY buyer", [(GroupAggregate, (_DAY,))]),
        ("SELECT /*+ state_ttl('o' = '3600') */ DISTINCT buyer FROM orders AS o", [(GroupAggregate, (3600,))]),
        (
            "SELECT /*+ STATE_TTL('o' = '1 h'), STATE_TTL('o' = '2 h') */ COUNT(*) FROM (SELECT * FROM orders) AS o",
            [(GroupAggregate, (_HOUR,))],
        ),
        (
            "SELECT /*+ STATE_TTL('a' = '1d', 'b' = '0s') */ a.id FROM orders AS a JOIN more AS b ON a.id = b.id",
            [(Join, (_DAY, 0))],
        ),
        (
            "SELECT /*+ STATE_TTL('c' = '1h', 'a' = '1d') */ a.id FROM orders a JOIN more b USING (id) JOIN orders c USING (id)",
            [(Join, (_DAY, None)), (Join, (None, _HOUR))],
        ),
        (
            "SELECT /*+ STATE_TTL('a' = '1d') */ COUNT(*) FROM orders a JOIN more b ON a.id = b.id",
            [(Join, (_DAY, None)), (GroupAggregate, ())],
        ),
        (
            "SELECT id FROM (SELECT /*+ STATE_TTL('orders' = '1h') */ DISTINCT id FROM orders) GROUP BY id",
            [(GroupAggregate, (_HOUR,)), (GroupAggregate, ())],
        ),
    ],
)  # fmt: skip
def test_state_lives_as_long_as_a_hint_says(
    query: str, expected: list[tuple[type[PlanNode], tuple[int | None, ...]]]
) -> None:
    assert lifetimes(query) == expected


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("STATE_TTL('orders' = '1d')", "STATE_TTL: there is no table 'orders' in FROM"),
        ("STATE_TTL('o' = 'long')", "STATE_TTL of 'o': expected a time such as '1 d', got 'long'"),
        ("STATE_TTL('o')", "STATE_TTL of 'o': expected a time such as '1 d', got nothing"),
        ("STATE_TTL('o' = '1d'", "the hint is not understood"),
        ("'o'", "the hint is not understood"),
    ],
)
def test_a_wrong_hint_is_an_error(hint: str, message: str) -> None:
    (line,) = lines(ORDERS + f"SELECT /*+ {hint} */ COUNT(*) FROM orders AS o")
    assert line.endswith(message)


@pytest.mark.parametrize(
    ("hint", "advice"),
    [
        ("BROADCAST(o)", "leave it out: joins are chosen by their condition"),
        ("lookup('table' = 'o', 'async' = 'true')", "set how a table is asked by its options"),
        ("STATE_TLL('o' = '1d')", "did you mean 'STATE_TTL'?"),
    ],
)
def test_a_hint_without_effect_is_warned_about(hint: str, advice: str) -> None:
    (warning,) = load(ORDERS + f"SELECT /*+ {hint} */ COUNT(*) FROM orders AS o").diagnostics
    assert warning.message == f"the hint {hint.partition('(')[0].upper()} has no effect"
    assert (warning.hint or "").startswith(advice)


def test_explain_shows_how_long_state_lives() -> None:
    query = "SELECT /*+ STATE_TTL('b' = '90 s') */ a.id FROM orders AS a JOIN more AS b ON a.id = b.id"
    assert "Join select.join [state_ttl=default/90s]" in plan_text(plan_of(ORDERS + _MORE + query))
