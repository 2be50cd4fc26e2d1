"""The rule of regular expressions that are none."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.errors import Location
from flowrun.plan.wrong_patterns import wrong_patterns
from flowrun.runners.lint.rule import LintRule, Subject


def _find(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    for found in wrong_patterns(subject.written):
        yield found.message, found.hint or "", found.location


RULE = LintRule(
    "wrong-pattern",
    "A constant regular expression is none, or has not the group that is asked for.",
    "REGEXP_EXTRACT, REGEXP_REPLACE and their like give NULL in such a case, and REGEXP FALSE, as they do in Flink, so that the pipeline "
    "runs and a column stays empty. `flowrun validate` and `flowrun run` warn of it as well. Patterns that come from data are not "
    "looked at.",
    _find,
)
