"""The rule of state that is never forgotten."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.errors import Location
from flowrun.lowering.settings import state_ttl_ms
from flowrun.plan.joins import Join
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import PlanNode, walk_plan
from flowrun.plan.relational import Deduplicate, GroupAggregate, OverAggregate, Rank
from flowrun.runners.lint.rule import LintRule, Subject, step_name

_REMEDY = (
    "say how long it is kept: settings: {state_ttl: 1d} (SET 'table.exec.state.ttl' = '1 d'), the step's own state_ttl, or the hint "
    "STATE_TTL; or group, join and rank in windows"
)


def _find(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    settings = subject.optimised.settings
    if settings.is_batch:
        return
    for node in walk_plan(subject.optimised):
        if isinstance(node, MatchRecognize):
            if node.within_ms is None and id(node) in subject.endless:
                kept = "the rows that may begin a match"
                yield _message(node, kept), "add WITHIN: how long a match may take", node.hints.location
            continue
        for number, kept in _kept(node):
            endless = id(node.inputs[number]) in subject.endless
            if endless and state_ttl_ms(node.hints, settings, number) == 0:
                yield _message(node, kept), _REMEDY, node.hints.location
                break


def _message(node: PlanNode, kept: str) -> str:
    return f"{step_name(node)} keeps {kept} for ever, and its input has no end"


def _kept(node: PlanNode) -> Iterator[tuple[int, str]]:
    """(number of an input, what is kept of it) for a node whose state a time to live limits, and nothing else."""
    match node:
        case Join():
            yield 0, "all rows of both sides"
            yield 1, "all rows of both sides"
        case GroupAggregate() if node.keys:
            yield 0, f"a result for each {_columns(node, node.keys)}" if node.aggregates else "each different row"
        case Deduplicate():
            yield 0, f"a row for each {_columns(node, node.keys)}"
        case Rank() if node.partition:
            yield 0, f"rows for each {_columns(node, node.partition)}"
        case OverAggregate() if node.keys and node.frame.preceding is None:
            yield 0, f"a result for each {_columns(node, node.keys)}"
        case _:
            return


def _columns(node: PlanNode, positions: tuple[int, ...]) -> str:
    names = node.inputs[0].schema.names
    return ", ".join(names[i] for i in positions)


RULE = LintRule(
    "state-without-limit",
    "Keys or rows of a stream without end are kept for ever.",
    "A regular join, a GROUP BY, a top-N, a deduplication or an OVER without a lower bound keeps something for each key, or each row, and "
    "MATCH_RECOGNIZE without WITHIN rows that may begin a match. Over a stream without end it grows as long as new keys come, until "
    "the disk is full. Set a time to live, or use windows, interval joins and temporal joins, which forget by event time. It is not "
    "reported where all sources end, of an aggregate without keys, and of what is kept of a table by its primary key, which is as large "
    "as the table. Where keys are few, such as countries, ignore it there.",
    _find,
)
