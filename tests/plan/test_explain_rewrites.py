"""What `explain --stage plan` says of the optimiser: before, after, the changes of each node, and the rules that did it."""

from __future__ import annotations

import json

from flowrun.plan.explain_rewrites import explain_rewrites, optimise_named
from flowrun.plan.rewrites import optimise
from tests.plan.plans import calc, plan, scan
from tests.plan.recognition.queries import planned

TOTALS = "SELECT user_id, SUM(amount) AS total FROM orders WHERE amount > 2 + 3 GROUP BY user_id"


def test_both_plans_are_shown_and_the_rules_that_made_a_difference() -> None:
    written, _, optimised = explain_rewrites(planned(TOTALS)).partition("\n\noptimised:\n")
    assert written.startswith("as written:\n")
    assert "(amount > (2 + 3))" in written
    assert "(amount > 5)" in optimised
    assert "changes: [+I, -U, +U]" in optimised
    assert "pushed: amount > 5" in optimised
    last = optimised.splitlines()[-1]
    assert last == "rules that changed the plan: fold_plan_constants, prune_columns, push_filter_hints"


def test_a_plan_that_is_as_good_as_it_gets_says_so() -> None:
    assert explain_rewrites(plan(scan())).endswith("rules that changed the plan: (none)")


def test_json_has_the_rules_and_each_nodes_changes() -> None:
    shown = json.loads(explain_rewrites(planned(TOTALS), "json", {"delivery": []}))
    assert shown["rules"] == ["fold_plan_constants", "prune_columns", "push_filter_hints"]
    assert [n.get("changes") for n in shown["nodes"]] == [None, None, "[+I, -U, +U]", "[+I, -U, +U]"]
    assert shown["delivery"] == []


def test_naming_the_rules_gives_the_same_plan() -> None:
    before = plan(calc(calc(scan(), "id", where="id > 1 + 1"), "id", where="id < 5"))
    assert explain_rewrites(optimise_named(before).plan) == explain_rewrites(optimise(before))
