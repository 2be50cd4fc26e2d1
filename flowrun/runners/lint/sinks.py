"""The rules of sinks: those that keep superseded rows, and those that never get one."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.errors import Location
from flowrun.plan.superseded import superseded_rows
from flowrun.runners.lint.rule import LintRule, Subject
from flowrun.runners.why.text_findings import sinks_without_rows


def _superseded(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    if subject.optimised.settings.is_batch:
        return  # it has no late rows
    for found in superseded_rows(subject.optimised):
        yield found.message, found.hint or "", found.location


def _empty(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    for sink, conditions in sinks_without_rows(subject.written, subject.optimised):
        what = f"sink '{sink.table.name}' never gets a row: {' and '.join(conditions) or 'its query'} is never true"
        yield what, "`flowrun explain` shows what becomes of the conditions", sink.hints.location


SUPERSEDED = LintRule(
    "superseded-rows",
    "A sink will hold rows that later ones replace.",
    "A window that fires more than once (allowed_lateness, a trigger that fires early) sends its new result as one more row, and a sink of "
    "files keeps both. Whoever sums them up counts twice. Deduplicate by the keys and window_start, or write to a sink with a primary key, "
    "which keeps the newest row of each key. `flowrun validate` warns of it as well.",
    _superseded,
)
EMPTY = LintRule(
    "empty-sink",
    "A sink never gets a row.",
    "Conditions before the sink contradict each other or are constant, so that no row can pass and its sources are not even read. "
    "`flowrun why FILE` says so as well.",
    _empty,
)
