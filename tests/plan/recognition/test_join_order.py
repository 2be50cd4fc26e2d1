"""The order of inner joins: no table is joined with all rows of another if one that connects them comes later."""

from __future__ import annotations

import pytest

from flowrun.plan.joins import Join
from flowrun.plan.nodes import walk_plan
from tests.plan.recognition.queries import planned, shape


def joins(query: str) -> list[str]:
    return [line for line in shape(planned(query)) if "Join" in line]


def test_a_table_waits_for_the_one_that_connects_it() -> None:
    query = "SELECT o.id FROM orders o, rates r, clicks c WHERE o.id = c.id AND c.url = r.currency AND o.amount > 3"
    assert joins(query) == ["Join inner on (id = id)", "Join inner on (url = currency)"]


def test_written_joins_wait_as_those_of_commas_do() -> None:
    query = "SELECT o.id FROM orders o JOIN rates r ON o.amount < r.rate JOIN clicks c ON o.id = c.id AND c.url = r.currency"
    assert joins(query) == [
        "Join inner on (id = id)",
        "Join inner on (url = currency) if (CAST(amount AS DOUBLE) < rate)",
    ]


def test_columns_come_out_as_they_were() -> None:
    plan = planned("SELECT * FROM orders o, rates r, clicks c WHERE o.id = c.id AND c.url = r.currency")
    unordered = planned("SELECT * FROM orders o, clicks c, rates r WHERE o.id = c.id AND c.url = r.currency")
    assert plan.sinks[0].schema.names[:9] == (*unordered.sinks[0].schema.names[:6], "currency0", "rate", "ts0")
    assert plan.sinks[0].schema.types[6:9] == unordered.sinks[0].schema.types[13:16]


def test_dimensions_of_dimensions_do_not_multiply_the_facts() -> None:
    """TPC-DS q64: dates that only the customer connects stand before it."""
    query = """SELECT f.id FROM orders f, clicks returned, side d1, side d2, side store, clicks customer, rates ad1, rates ad2
               WHERE f.id = returned.id AND f.user_id = d1.k AND customer.url = d2.k AND f.currency = store.k
                 AND f.user_id = customer.user_id AND f.currency = ad1.currency AND customer.user_id = ad2.currency
                 AND ad1.rate <> ad2.rate"""
    plan = planned(query)
    assert all(n.left_keys for n in walk_plan(plan) if isinstance(n, Join))
    assert len(joins(query)) == 7


def test_joins_in_a_derived_table_belong_to_those_around() -> None:
    query = """SELECT x.id FROM (SELECT o.id, r.currency AS cur FROM orders o, rates r) x, clicks c
               WHERE x.id = c.id AND c.url = x.cur"""
    assert joins(query) == ["Join inner on (id = id)", "Join inner on (url = currency)"]


def test_tables_that_nothing_connects_are_joined_last_and_each_group_by_itself() -> None:
    query = """SELECT o.id FROM orders o, rates r, clicks c, side s, plain p
               WHERE o.id = c.id AND r.currency = p.currency AND s.v > o.user_id"""
    assert joins(query) == [
        "Join inner on (id = id)",
        "Join inner on () if (v > user_id)",
        "Join inner on (currency = currency)",
        "Join inner on ()",
    ]


def test_a_product_first_does_not_hide_an_interval() -> None:
    query = """SELECT o.id FROM orders o, rates r, clicks c
               WHERE o.id = c.id AND c.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR AND r.currency = o.currency || c.url"""
    assert joins(query) == ["IntervalJoin inner on (id = id) [0, 3600000] event", "Join inner on ($13 = currency)"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (  # every join has a key
            "SELECT o.id FROM orders o, clicks c, rates r WHERE o.id = c.id AND o.currency = r.currency",
            ["Join inner on (id = id)", "Join inner on (currency = currency)"],
        ),
        (  # times that bound each other are something to go by
            """SELECT o.id FROM orders o, clicks c, rates r
               WHERE c.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR AND o.currency = r.currency""",
            ["IntervalJoin inner on () [0, 3600000] event", "Join inner on (currency = currency)"],
        ),
        (  # the product comes last already
            "SELECT o.id FROM orders o, clicks c, rates r WHERE o.id = c.id",
            ["Join inner on (id = id)", "Join inner on ()"],
        ),
        (  # a time to live is said of this join
            """SELECT /*+ STATE_TTL('r' = '1 d') */ o.id FROM orders o, rates r, clicks c
               WHERE o.id = c.id AND c.url = r.currency""",
            ["Join inner on ()", "Join inner on (id = id, currency0 = url)"],
        ),
        (  # what is not the same each time is computed for the pairs that are written
            "SELECT o.id FROM orders o, rates r, clicks c WHERE o.id = c.id AND c.url = r.currency AND r.rate + o.amount < RAND()",
            [
                "Join inner on () if ((rate + CAST(amount AS DOUBLE)) < RAND())",
                "Join inner on (id = id, currency0 = url)",
            ],
        ),
        (  # outer joins stay where they are
            "SELECT o.id FROM orders o LEFT JOIN rates r ON o.amount < r.rate JOIN clicks c ON o.id = c.id",
            ["Join left on () if (CAST(amount AS DOUBLE) < rate)", "Join inner on (id = id)"],
        ),
    ],
)
def test_orders_that_stay(query: str, expected: list[str]) -> None:
    assert joins(query) == expected


def test_what_may_fail_is_tested_where_the_fewest_rows_are_left() -> None:
    query = """SELECT o.id FROM orders o, rates r, clicks c, plain p
               WHERE o.id = c.id AND c.url = r.currency AND p.currency = r.currency AND 10 / (o.id - c.order_id) > 1"""
    assert joins(query) == [
        "Join inner on (id = id)",
        "Join inner on (url = currency)",
        "Join inner on (currency_ = currency) if ((10 / (id - CAST(order_id AS BIGINT))) > 1)",
    ]
