"""The reference page of the rules of `flowrun lint`; `docs/reference/lint.md` is this text."""

from __future__ import annotations

from flowrun.runners.lint.rules import RULES

_INTRODUCTION = """# Rules of `flowrun lint`

<!-- Generated from flowrun/runners/lint/rules.py; tests/test_reference_pages.py says how. Do not edit. -->

`flowrun lint` looks at pipelines that have no errors, for what is right but seldom meant. `# flowrun: ignore RULE` (in SQL
`-- flowrun: ignore RULE`), at the end of the line or on a line of its own before it, silences a rule there; several are separated by
commas. [Projects](../projects.md) says more.

| rule | finds |
|---|---|"""


def reference_markdown() -> str:
    """The whole page."""
    rows = [f"| [`{rule.name}`](#{rule.name}) | {rule.summary} |" for rule in RULES]
    sections = [f"## `{rule.name}`\n\n{rule.summary} {rule.explanation}\n" for rule in RULES]
    return "\n".join([_INTRODUCTION, *rows, "", *sections])
