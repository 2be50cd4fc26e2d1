"""What every rule makes of queries: the plan before it, as the rules ahead of it left it, and after.

`goldens/<rule>/<case>.sql` is the query, `<case>.txt` what was recorded. After a change of a rule or of how plans are shown:
`FLOWRUN_UPDATE_GOLDEN=1 pytest tests/plan/test_golden_rules.py`, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowrun.plan.explain import plan_text
from flowrun.plan.nodes import Plan
from flowrun.plan.rewrites import RULES
from tests.plan.recognition.queries import FOLDER, planned

GOLDENS = Path(__file__).parent / "goldens"
UPDATE = os.environ.get("FLOWRUN_UPDATE_GOLDEN") == "1"
CASES = sorted(GOLDENS.glob("*/*.sql"))


@pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_what_a_rule_makes_of_a_query(case: Path) -> None:
    """Apply the rules ahead of the case's, show the plan, apply it, show the plan. A case that stays is shown when all rules are done."""
    stays = "-- stays" in case.read_text()
    plan = planned(case.read_text().replace("${FOLDER}", str(FOLDER)))
    before = after = shown(plan)
    for rule in RULES:  # some run several times: the first that changes something counts
        before, plan = shown(plan), rule(plan)
        after = shown(plan)
        if rule.__name__ == case.parent.name and before != after:
            break
    else:
        assert stays, after
        before = after
    assert (before == after) is stays, after
    text = f"{before}\n" if stays else f"before:\n{before}\n\nafter:\n{after}\n"
    recorded = case.with_suffix(".txt")
    if UPDATE:
        recorded.write_text(text)
    assert text == recorded.read_text()


def test_every_rule_has_a_case() -> None:
    assert {c.parent.name for c in CASES} == {r.__name__ for r in RULES}


def shown(plan: Plan) -> str:
    """The plan without what every table says."""
    dull = ("connector:", "options:", "format:", "watermark:", "null_keys:")
    return "\n".join(line for line in plan_text(plan).splitlines() if not any(d in line for d in dull))
