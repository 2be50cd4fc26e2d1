"""What the optimiser makes of a plan, for people and programs: before, after, and the rules that did it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flowrun.core.record import record
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.explain import plan_json, plan_mermaid, plan_text
from flowrun.plan.nodes import Plan
from flowrun.plan.rewrites import RULES, Rule
from flowrun.plan.row_errors import route_row_errors


@record
class Optimised:
    """A plan after the rules, and the names of those that changed what an explained plan shows, in order."""

    plan: Plan
    changed_by: tuple[str, ...]


def optimise_named(plan: Plan, rules: Sequence[Rule] = RULES) -> Optimised:
    """The plan after every rule, and which of them made a difference. Slower than `optimise`: each step is compared as text."""
    changed: dict[str, None] = {}
    text = plan_text(plan)
    for rule in rules:
        plan = rule(plan)
        after = plan_text(plan)
        if after != text:
            changed[rule.__name__] = None
        text = after
    return Optimised(route_row_errors(plan), tuple(changed))


def explain_rewrites(
    written: Plan, form: str = "text", more: dict[str, Any] | None = None, rules: Sequence[Rule] = RULES
) -> str:
    """The plan as written and optimised (`text`), or optimised only (`json`, `mermaid`).

    Args:
        written: before the rules.
        form: text, json or mermaid.
        more: further entries of the JSON form.
        rules: in their order.

    Raises:
        OptionError: a source cannot be made from its options.
        ValueError: another form was asked for.
    """
    optimised = optimise_named(written, rules)
    modes = changelog_modes(optimised.plan)
    match form:
        case "text":
            after = plan_text(optimised.plan, modes)
            changed = ", ".join(optimised.changed_by) or "(none)"
            return f"as written:\n{plan_text(written)}\n\noptimised:\n{after}\n\nrules that changed the plan: {changed}"
        case "json":
            shown = {**plan_json(optimised.plan, modes), "rules": list(optimised.changed_by), **(more or {})}
            return json.dumps(shown, indent=2, ensure_ascii=False)
        case "mermaid":
            return plan_mermaid(optimised.plan, modes)
        case _:
            raise ValueError(f"a plan can be shown as text, json or mermaid, not {form}")
