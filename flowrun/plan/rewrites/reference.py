"""The reference of the rules, made of their names and docstrings."""

from __future__ import annotations

import inspect

from flowrun.plan.rewrites.rules import RULES

_INTRODUCTION = """\
# Optimiser

<!-- generated from `flowrun/plan/rewrites` by `make docs`; do not edit -->

Before a pipeline runs, its plan goes through the rules below, whether it was written as YAML or as SQL. None of them changes what a
sink gets. `flowrun explain --stage plan` shows the plan as written and optimised, and names the rules that made a difference; the
JSON form has their names under `rules`.

They run in this order (a rule that is named twice runs again where others may have given it something to do):

{order}

"""


def reference_markdown() -> str:
    """The page: what each rule does, in the order in which they first run."""
    rules = list(dict.fromkeys(RULES))
    order = " → ".join(f"[{r.__name__}](#{r.__name__})" for r in RULES)
    sections = [f"## {rule.__name__}\n\n{inspect.getdoc(rule)}\n" for rule in rules]
    return _INTRODUCTION.format(order=order) + "\n".join(sections)
