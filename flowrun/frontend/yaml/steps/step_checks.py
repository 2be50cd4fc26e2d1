"""Which parts of a step go together: every combination that means nothing is reported before the step is built."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.names import SECOND_INPUTS
from flowrun.frontend.yaml.queries.step_queries import SET_PARTS
from flowrun.frontend.yaml.steps.stages import WITH_LIFETIME

INPUTS = ("from", "union", "sql", *SET_PARTS)
_KEYED = ("aggregate", "process", "deduplicate")
_WITH_AGGREGATE = ("allowed_lateness", "late_output", "trigger", "evictor", "output_mode")


def check_parts(section: Section, diagnostics: Diagnostics) -> bool:
    """Whether the parts of a step go together; what does not is reported where it stands."""
    problems = [*_inputs(section), *_aggregates(section), *_second_input(section), *_keys(section), *_rows(section)]
    for key, message, hint in problems:
        # A key that is not there is a guess at a misspelt one, which has been reported.
        if not key or section.node.entry(key) is not None:
            diagnostics.error(message, section.at(key) if key else section.location, hint=hint)
    return not problems and _check_window(section, diagnostics)


_Problem = tuple[str, str, str]
_IN_QUERIES = "remove it; in 'sql' write SELECT /*+ STATE_TTL('table' = '1 d') */"


def _inputs(section: Section) -> Iterator[_Problem]:
    given = [k for k in INPUTS if section.has(k)]
    if not given:
        yield "", "a step needs the key 'from' (or 'union', 'sql', …)", "name the source or step to read"
    for other in given[1:]:
        yield other, f"a step has either '{given[0]}' or '{other}'", "remove one of them"
    if section.has("map") and section.has("flat_map"):
        yield "flat_map", "a step has either 'map' or 'flat_map'", "use a second step"
    for key in ("join", "unnest"):
        if section.has(key) and given and given != ["from"]:
            yield key, f"'{key}' needs 'from'", "name the other steps' rows in a step before, and read it here"
    join = section.section("join")
    if join is not None:
        yield from _join(section, join)


def _join(section: Section, join: Section) -> Iterator[_Problem]:
    other, alias, left = join.scalar("with"), join.text("as"), section.text("from")
    if other is not None and (alias or other.text) == left:
        hint = f"give the columns of the second another name: as: other_{left}"
        yield "join", f"both sides of the join are called '{left}'", hint
    kind, how = join.text("type") or "inner", join.text("kind")
    versions = join.has("as_of") or how in ("temporal", "lookup")
    if versions and kind not in ("inner", "left"):
        yield "join", f"a join with versions ('as_of') cannot be of type '{kind}'", "use type: inner or left"
    if how == "temporal" and not join.has("as_of"):
        yield "join", "a temporal join needs the key 'as_of'", "as_of: the time column of the left side"
    if join.has("as_of") and how in ("window", "interval", "regular"):
        yield "join", f"a join with 'as_of' is temporal or a lookup, not '{how}'", "remove 'kind' or 'as_of'"


def _aggregates(section: Section) -> Iterator[_Problem]:
    if section.has("process") and section.has("aggregate"):
        yield "process", "a step has either 'process' or 'aggregate'", "use a second step"
    window = section.section("window")
    if (
        window is not None
        and window.variant == "custom"
        and not section.has("process")
        and not section.has("aggregate")
    ):
        yield (
            "window",
            "windows of type custom need 'aggregate' or 'process'",
            "add aggregate: COUNT(*) AS n, or another type",
        )
    keyed = [k for k in _KEYED if section.has(k)]
    if "deduplicate" in keyed and len(keyed) > 1:
        yield "deduplicate", f"a step has either 'deduplicate' or '{keyed[0]}'", "use a second step"
    if section.has("having") and not section.has("aggregate"):
        yield "having", "'having' filters results of 'aggregate'", "use filter"


def _second_input(section: Section) -> Iterator[_Problem]:
    given = [key for key in SECOND_INPUTS if section.has(key)]
    for other in given[1:]:
        hint = "use a second step, or union the streams before"
        yield other, f"a function reads one further stream: a step has either '{given[0]}' or '{other}'", hint
    for key in given:
        if not section.has("process"):
            yield key, f"'{key}' needs 'process'", "add process: module:Class, a function of both streams"
        if section.has("window"):
            hint = "use a second step, over the rows of both (union), or after the function"
            yield key, f"a function of two streams has no windows: '{key}' and 'window' do not go together", hint
        second = section.section(key)
        if second is not None and second.has("key_by") and not section.has("key_by"):
            hint = "add key_by to the step: the keys of its own rows"
            yield key, f"the second stream has keys ('{key}.key_by'), the step has none", hint


def _keys(section: Section) -> Iterator[_Problem]:
    if section.has("deduplicate") and not section.has("key_by"):
        yield "deduplicate", "'deduplicate' needs 'key_by'", "key_by: the columns of which each value is kept once"
    session = section.section("window")
    sessions = session is not None and session.variant == "session"
    if section.has("key_by") and not sessions and not any(section.has(k) for k in (*_KEYED, *SECOND_INPUTS)):
        hint = "remove it"
        yield "key_by", "'key_by' has no effect without 'aggregate', 'deduplicate' or 'process'", hint
    if section.has("null_keys") and not section.has("key_by"):
        yield "null_keys", "'null_keys' has no effect without 'key_by'", "remove it"
    elif section.text("null_keys") == "fail" and not section.has("process") and not section.has("window"):
        hint = "null_keys: group or drop; or check them in a filter before"
        yield "null_keys", "without 'window' or 'process' a NULL key cannot fail the job", hint


def _rows(section: Section) -> Iterator[_Problem]:
    if section.has("offset") and not section.has("limit"):
        yield "offset", "'offset' needs 'limit'", "a stream's rows cannot be kept for ever: limit: 10"
    if section.has("state_ttl") and (section.has("window") or not any(section.has(k) for k in WITH_LIFETIME)):
        named = ", ".join(f"'{k}'" for k in WITH_LIFETIME)
        hint = "windows forget their state themselves: remove it" if section.has("window") else _IN_QUERIES
        yield "state_ttl", f"'state_ttl' is for steps with {named} and no window", hint


def _check_window(section: Section, diagnostics: Diagnostics) -> bool:
    window = section.section("window")
    if window is None:
        return True
    if section.has("process") and window.has("output_mode"):
        hint = "window functions send what they like: remove it"
        diagnostics.error("'output_mode' is for windows with 'aggregate'", window.at("output_mode"), hint=hint)
        return False
    if section.has("aggregate") or section.has("process"):
        if window.has("column"):
            hint = "rows are aggregated by their event time: remove it, or use the column as the source's watermark"
            diagnostics.error("'column' is for windows without 'aggregate'", window.at("column"), hint=hint)
        return True
    if window.variant in ("count", "global", "custom"):
        hint = 'e.g. aggregate: ["COUNT(*) AS n"]'
        diagnostics.error(f"a {window.variant} window needs 'aggregate' or 'process'", section.at("window"), hint=hint)
        return False
    wrong = [k for k in _WITH_AGGREGATE if window.has(k)]
    for key in wrong:
        hint = 'e.g. aggregate: ["COUNT(*) AS n"]'
        diagnostics.error(f"'{key}' needs 'aggregate' beside the window", window.at(key), hint=hint)
    return not wrong
