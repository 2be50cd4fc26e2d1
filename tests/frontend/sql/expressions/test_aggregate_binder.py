"""Aggregates become calls over the input rows and output columns over the grouped rows."""

import pytest

from flowrun.core.types import BIGINT, DOUBLE, INT, decimal
from flowrun.frontend.sql.expressions.from_text import ListedExpressionError, bind_aggregates
from flowrun.plan.expressions import ColumnRef
from tests.frontend.sql.expressions.evaluation import ORDERS

KEYS = [ORDERS.index("s")]
BOUNDS = ("window_start", "window_end")


def test_plain_calls_need_no_projection():
    binding = bind_aggregates(["COUNT(*) AS n", "SUM(d) AS total", "COUNT(DISTINCT a) AS users"], ORDERS, KEYS, BOUNDS)
    assert binding.plain
    assert [str(c) for c in binding.calls] == ["COUNT(*)", "SUM(d)", "COUNT(DISTINCT a)"]
    assert [c.name for c in binding.calls] == ["n", "total", "users"]
    assert [c.type for c in binding.calls] == [BIGINT, decimal(38, 2), BIGINT]
    assert [e for _, e in binding.outputs] == [ColumnRef(c.type, 3 + i, c.name) for i, c in enumerate(binding.calls)]


def test_expressions_of_calls_share_equal_calls():
    binding = bind_aggregates(["SUM(a) / COUNT(*) AS mean", "COUNT(*) AS n", "ROUND(AVG(x), 2) AS r"], ORDERS, KEYS)
    assert not binding.plain
    assert [str(c) for c in binding.calls] == ["SUM(a)", "COUNT(*)", "AVG(x)"]
    assert binding.calls[1].name == "n"
    assert [(n, e.type) for n, e in binding.outputs] == [("mean", BIGINT), ("n", BIGINT), ("r", DOUBLE)]


def test_filters_and_keys_and_bounds():
    binding = bind_aggregates(
        ["COUNT(*) FILTER (WHERE a > 5) AS big", "UPPER(s) AS name", "window_end AS until", "s"], ORDERS, KEYS, BOUNDS
    )
    assert str(binding.calls[0]) == "COUNT(*) FILTER (WHERE (a > 5))"
    assert [(n, str(e)) for n, e in binding.outputs][1:] == [("name", "UPPER(s)"), ("until", "window_end"), ("s", "s")]


def test_a_call_listed_twice_is_one_call_with_two_columns():
    binding = bind_aggregates(["SUM(a) AS x", "SUM(a) AS y"], ORDERS, KEYS)
    assert len(binding.calls) == 1
    assert not binding.plain
    assert [(n, e.type) for n, e in binding.outputs] == [("x", INT), ("y", INT)]


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (["COUNT(*)"], "the column needs a name", "write COUNT(*) AS some_name"),
        (["a AS x"], "column 'a' is neither a key nor inside an aggregate", "add it to key_by, or take one value"),
        (["SUM(a + COUNT(*)) AS x"], "COUNT stands inside another aggregate", "two steps"),
        (["SUM(*) AS x"], "SUM(*) has no meaning", "usage"),
        (["SUM() AS x"], "SUM needs an argument", "usage"),
        (["SUM(s) AS x"], "SUM", None),
        (["COUNT(*) AS s"], "'s' is already a key or window column", "choose another name"),
        (["SUM(a) FILTER (WHERE a) AS x"], "the condition of FILTER must be BOOLEAN, this is INT", None),
        (["COUNT(*) AS n", "SUM(a) AS n"], "column 'n' occurs more than once", None),
        (["SUM(amont) AS x"], "column 'amont' does not exist in the input", None),
        (["UPPER(nme) AS x"], "column 'nme' does not exist in the grouped row", None),
    ],
)
def test_what_cannot_be_grouped_is_an_error(texts, message, hint):
    with pytest.raises(ListedExpressionError) as caught:
        bind_aggregates(texts, ORDERS, KEYS, BOUNDS)
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")
