"""The order of joins by the sizes of their tables: which chains of joins get which, and which stay as they are written.

`goldens/<case>.sql` is the query, `<case>.txt` the plan without and with the rule. After a change: `FLOWRUN_UPDATE_GOLDEN=1 pytest -n0`
this file, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowrun.plan.join_order import order_by_sizes, table_rows
from flowrun.plan.joins import Join
from flowrun.plan.nodes import walk_plan
from flowrun.plan.rewrites import optimise, rules_with
from tests.plan.join_order.tables import STAR, moves, ordered
from tests.plan.recognition.queries import planned
from tests.plan.test_golden_rules import shown

UPDATE = os.environ.get("FLOWRUN_UPDATE_GOLDEN") == "1"
CASES = sorted((Path(__file__).parent / "goldens").glob("*.sql"))
BAD = (
    "SELECT s.id FROM sales s JOIN customers c ON s.customer = c.id JOIN parts p ON s.part = p.id WHERE p.brand = 'b7'"
)
GROUPED = "(SELECT id, brand, COUNT(*) AS n FROM parts GROUP BY id, brand) p"


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_what_becomes_of_a_chain_of_joins(case: Path) -> None:
    before, after = ordered(case.read_text())
    text = f"before:\n{shown(before)}\n\nafter:\n{shown(after)}\n"
    if UPDATE:
        case.with_suffix(".txt").write_text(text)
    assert text == case.with_suffix(".txt").read_text()
    assert before.sinks[0].schema == after.sinks[0].schema


def test_a_bad_order_is_mended() -> None:
    assert moves(BAD)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(f"SET 'table.optimizer.join-reorder-enabled' = 'false'; {BAD}", id="switched off"),
        pytest.param(f"SET 'table.exec.state.ttl' = '1 h'; {BAD}", id="rows are forgotten"),
        pytest.param(BAD.replace("SELECT", "SELECT /*+ STATE_TTL('s' = '1 d') */", 1), id="a hint"),
        pytest.param(BAD.replace("JOIN customers", "LEFT JOIN customers"), id="an outer join"),
        pytest.param(BAD.replace("parts p", "endless p").replace("s.part", "s.supplier").replace("brand", "name"), id="no end"),
        pytest.param(BAD.replace("WHERE", "AND s.amount / (p.size - 1) > c.nation WHERE"), id="a condition that may fail"),
        pytest.param(BAD.replace("WHERE", "AND s.amount > p.size * RAND() WHERE"), id="a condition by chance"),
        pytest.param(BAD.replace("parts p", GROUPED), id="changes"),
        pytest.param(BAD.replace("parts p", "(SELECT id, brand FROM parts CROSS JOIN UNNEST(ARRAY[size]) AS x(i)) p"), id="unknown"),
        pytest.param(BAD.replace(" WHERE p.brand = 'b7'", ""), id="little to win"),
        pytest.param("SELECT s.id FROM sales s JOIN parts p ON s.part = p.id", id="two tables"),
        pytest.param(
            "SELECT s.id FROM sales s JOIN parts p ON s.part = p.id JOIN customers c ON s.customer = c.id WHERE p.brand = 'b7'", id="good"
        ),
    ],
)  # fmt: skip
def test_what_stays_as_it_is_written(written: str) -> None:
    assert not moves(written)


def test_in_a_batch_aggregates_are_tables_as_others_are() -> None:
    assert moves(f"SET 'execution.runtime-mode' = 'batch'; {BAD.replace('parts p', GROUPED)}")


def test_a_join_that_moved_does_not_take_the_state_of_the_one_that_was_there() -> None:
    before, after = ({n.hints.place for n in walk_plan(p) if isinstance(n, Join)} for p in ordered(BAD))
    assert len(before) == len(after) == 2
    assert not before & after


def test_the_same_sizes_give_the_same_order() -> None:
    plan = planned(STAR + BAD)
    once, again = (shown(optimise(plan, rules_with(order_by_sizes(table_rows(plan))))) for _ in range(2))
    assert once == again


def test_many_tables_are_ordered_one_pair_after_the_other() -> None:
    joins = " ".join(f"JOIN customers c{i} ON s.customer = c{i}.id" for i in range(12))
    query = f"SELECT s.id FROM sales s {joins} JOIN parts p ON s.part = p.id WHERE p.brand = 'b7'"
    _, after = ordered(query)
    first = next(n for n in walk_plan(after) if isinstance(n, Join))
    assert "part" in first.left.schema.names
    assert first.right.schema.names == ("id",)


def test_sizes_are_those_of_the_tables_that_a_plan_reads() -> None:
    assert table_rows(planned(STAR + BAD)) == {"sales": 300_000, "customers": 30_000, "parts": 1_000}


def test_a_source_that_is_gone_leaves_the_plan_to_those_who_check_it(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    plan = planned(f"""{STAR} CREATE TABLE more (id BIGINT) WITH ('connector'='filesystem', 'path'='{tmp_path}/rows', 'format'='csv');
        SELECT s.id FROM sales s JOIN more m ON s.id = m.id JOIN parts p ON s.part = p.id WHERE p.brand = 'b7'""")
    sizes = table_rows(plan)
    (tmp_path / "rows").rmdir()
    assert sizes["more"] == 0
    assert table_rows(plan) == {}
    assert shown(optimise(plan, rules_with(order_by_sizes(sizes)))) == shown(optimise(plan))
