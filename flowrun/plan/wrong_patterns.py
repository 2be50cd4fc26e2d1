"""Constant regular expressions that are none, or lack a group. As in Flink their functions give NULL, which is seldom meant."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.errors import Diagnostic, Severity
from flowrun.functions.regex.syntax import RegexSyntaxError, UnsupportedRegexError, compile_java
from flowrun.functions.strings.regexp import REGEX_FUNCTIONS
from flowrun.plan.expressions import Call, Literal, walk
from flowrun.plan.nodes import Plan, PlanNode, walk_plan
from flowrun.plan.rewrites.traversal import expressions_of

_OF_GROUPS = ("REGEXP_EXTRACT", "REGEXP_EXTRACT_ALL")


def wrong_patterns(plan: Plan) -> list[Diagnostic]:
    """A warning for each of them, once a step; `plan` as it is written, as the rewrites replace constants by their values."""
    found = [_warning(call, node) for node in walk_plan(plan) for call in _calls(node)]
    return list(dict.fromkeys(warning for warning in found if warning is not None))


def _calls(node: PlanNode) -> Iterator[Call]:
    for expression in expressions_of(node):
        for part in walk(expression):
            if isinstance(part, Call) and part.function in REGEX_FUNCTIONS:
                yield part


def _warning(call: Call, node: PlanNode) -> Diagnostic | None:
    pattern = call.arguments[1]
    if not isinstance(pattern, Literal) or pattern.value is None:
        return None
    found = _problem(pattern.value, call)
    if found is None:
        return None
    problem, hint = found
    result = "FALSE" if call.function == "REGEXP" else "NULL"
    return Diagnostic(
        f"{call.function} gives {result} for every row, as in Flink: {problem}",
        location=node.hints.location,
        hint=hint,
        severity=Severity.WARNING,
    )


def _problem(pattern: str, call: Call) -> tuple[str, str] | None:
    """(what is wrong with a pattern or the group that is asked for, what to do); None: nothing is."""
    try:
        groups = compile_java(pattern).groups
    except UnsupportedRegexError:
        return None
    except RegexSyntaxError as error:
        return str(error), "mend it; a backslash or a quote may need another one before it"
    group = call.arguments[2] if call.function in _OF_GROUPS and len(call.arguments) > 2 else None
    if not isinstance(group, Literal) or group.value is None or 0 <= group.value <= groups:
        return None
    return f"'{pattern}' has no group {group.value}", f"its groups are 0, the whole match, to {groups}"
