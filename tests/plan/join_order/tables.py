"""Tables of known sizes, and plans over them."""

from __future__ import annotations

from flowrun.plan.explain import plan_text
from flowrun.plan.join_order import order_by_sizes, table_rows
from flowrun.plan.nodes import Plan
from flowrun.plan.rewrites import optimise, rules_with
from tests.plan.recognition.queries import planned


def _table(name: str, columns: str, rows: int | None, key: str = "id") -> str:
    options = "'connector'='datagen'" + (f", 'number-of-rows'='{rows}'" if rows is not None else "")
    primary = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    return f"CREATE TABLE {name} ({columns}{primary}) WITH ({options});\n"


STAR = (
    _table("sales", "id BIGINT, customer BIGINT, part BIGINT, supplier BIGINT, code STRING, amount INT", 300_000, "")
    + _table("customers", "id BIGINT, name STRING, nation BIGINT", 30_000)
    + _table("parts", "id BIGINT, brand STRING, size INT, code STRING", 1_000)
    + _table("suppliers", "id BIGINT, nation BIGINT", 1_000)
    + _table("nations", "id BIGINT, name STRING, region BIGINT", 25)
    + _table("regions", "id BIGINT, name STRING", 5)
    + _table("endless", "id BIGINT, name STRING", None)
)


def ordered(script: str) -> tuple[Plan, Plan]:
    """(the plan without the order by sizes, the plan with it) of statements over the tables."""
    plan = planned(STAR + script)
    return optimise(plan), optimise(plan, rules_with(order_by_sizes(table_rows(plan))))


def moves(script: str) -> bool:
    """Whether the joins of a script are put in another order."""
    before, after = ordered(script)
    return plan_text(before) != plan_text(after)
