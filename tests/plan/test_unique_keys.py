# ruff: noqa: E501 - one query a line
"""Unique keys: which columns tell the current rows of a node apart."""

from __future__ import annotations

import pytest

from flowrun.plan.conflicts import OnConflict, ResolveConflicts
from flowrun.plan.nodes import NodeHints
from flowrun.plan.unique_keys import unique_keys
from tests.plan.recognition.queries import planned

LAST = "(SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id, user_id ORDER BY ts DESC) r FROM clicks) WHERE r = 1)"


def keys(query: str) -> set[frozenset[str]]:
    node = planned(query).sinks[0].input
    return {frozenset(node.schema.names[c] for c in key) for key in unique_keys(node)}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM orders", []),
        ("SELECT * FROM rates", [{"currency"}]),
        ("SELECT rate, currency AS c, currency AS d FROM rates WHERE rate > 1", [{"c"}, {"d"}]),
        ("SELECT rate, UPPER(currency) AS c FROM rates", []),
        ("SELECT user_id, currency, COUNT(*) n FROM orders GROUP BY user_id, currency", [{"user_id", "currency"}]),
        ("SELECT COUNT(*) n FROM orders", [set()]),
        ("SELECT DISTINCT user_id, currency FROM orders", [{"user_id", "currency"}]),
        (f"SELECT id, user_id, url FROM {LAST}", [{"id", "user_id"}]),
        (f"SELECT id, url FROM {LAST}", []),
        ("SELECT id, r FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY amount) r FROM orders) WHERE r <= 3", [{"r"}]),
        ("SELECT id, r, user_id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount) r FROM orders) WHERE r <= 3", [{"r", "user_id"}]),
        ("SELECT id, r FROM (SELECT *, RANK() OVER (ORDER BY amount) r FROM orders) WHERE r <= 3", []),
        ("SELECT user_id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount) r FROM orders) WHERE r = 2", [{"user_id"}]),
        ("SELECT currency, rate FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rate ORDER BY ts, currency) r FROM rates) WHERE r <= 2", [{"currency"}]),
        (
            "SELECT window_end, id, COUNT(*) n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end, id",
            [{"window_end", "id"}],
        ),
        ("SELECT a.currency, b.currency AS other FROM rates a JOIN rates b ON a.rate = b.rate", [{"currency", "other"}]),
        ("SELECT a.currency, b.currency AS other FROM rates a JOIN rates b ON a.currency = b.currency", [{"currency"}, {"other"}]),
        ("SELECT a.currency, b.currency AS other FROM rates a LEFT JOIN rates b ON a.currency = b.currency", [{"currency"}]),
        ("SELECT a.currency, b.currency AS other FROM rates a RIGHT JOIN rates b ON a.currency = b.currency", [{"other"}]),
        ("SELECT a.currency FROM rates a WHERE EXISTS (SELECT 1 FROM orders o WHERE o.currency = a.currency)", [{"currency"}]),
        ("SELECT a.currency, b.rate, b.currency AS other FROM rates a FULL JOIN rates b ON a.currency = b.currency", []),
    ],
)  # fmt: skip
def test_unique_keys(query: str, expected: list[set[str]]) -> None:
    assert keys(query) == {frozenset(e) for e in expected}


def test_keys_that_tables_declare_prove_nothing_where_only_operators_count() -> None:
    def enforced(query: str) -> int:
        return len(unique_keys(planned(query).sinks[0].input, declared=False))

    assert enforced("SELECT * FROM rates") == 0
    assert enforced("SELECT a.currency, b.currency AS other FROM rates a JOIN rates b ON a.rate = b.rate") == 0
    assert enforced("SELECT currency, MAX(rate) FROM rates GROUP BY currency") == 1


@pytest.mark.parametrize(
    ("type", "to", "same"),
    [
        ("INT", "BIGINT", True), ("BIGINT", "INT", False), ("BIGINT", "STRING", True), ("BIGINT", "VARCHAR(30)", False),
        ("INT", "DOUBLE", True), ("BIGINT", "DOUBLE", False), ("INT", "DECIMAL(12, 2)", True), ("INT", "DECIMAL(11, 2)", False),
        ("INT", "FLOAT", False), ("FLOAT", "DOUBLE", True), ("DOUBLE", "FLOAT", False), ("DOUBLE", "STRING", False),
        ("DECIMAL(5, 2)", "DECIMAL(7, 4)", True), ("DECIMAL(5, 2)", "DECIMAL(7, 1)", False), ("DECIMAL(5, 2)", "STRING", False),
        ("VARCHAR(3)", "STRING", True), ("STRING", "VARCHAR(3)", False), ("VARCHAR(3)", "VARCHAR(4)", True), ("CHAR(3)", "STRING", True),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", True), ("TIMESTAMP(6)", "TIMESTAMP(3)", False), ("TIMESTAMP(3)", "DATE", False),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", False), ("DATE", "STRING", True), ("BOOLEAN", "INT", False), ("TINYINT", "SMALLINT", True),
    ],
)  # fmt: skip
def test_a_cast_to_a_type_that_holds_all_values_keeps_rows_apart(type: str, to: str, same: bool) -> None:
    query = f"SELECT CAST(k AS {to}) AS k, n FROM (SELECT CAST(url AS {type}) AS k, COUNT(*) AS n FROM clicks GROUP BY CAST(url AS {type}))"
    node = planned(query).sinks[0].input
    assert unique_keys(node, declared=False) == frozenset(), "plans that have state stay as they are"
    found = unique_keys(node, declared=False, widened=True)
    assert found == ({frozenset({0})} if same else frozenset())


def test_conflicts_are_resolved_by_key() -> None:
    rows = planned("SELECT id, user_id FROM orders").sinks[0].input
    node = ResolveConflicts(rows.schema, NodeHints(), rows, (1,), OnConflict.ERROR, "out")
    assert unique_keys(node) == {frozenset({1})}
