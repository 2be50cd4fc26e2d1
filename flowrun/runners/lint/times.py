"""The rule of results that depend on when the pipeline runs."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.core.semantics import TimeDomain
from flowrun.errors import Location
from flowrun.functions.times.current_time import CURRENT_TIMES
from flowrun.plan.expressions import AggregateCall, Call, Expression, walk
from flowrun.plan.joins import IntervalJoin, WindowJoin
from flowrun.plan.lineage import inputs_of
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import Calc, PlanNode, Process, Scan, Sink, WindowAggregate, walk_plan
from flowrun.plan.relational import (
    Deduplicate,
    Expand,
    GroupAggregate,
    OverAggregate,
    WindowRank,
    WindowTableFunction,
)
from flowrun.runners.lint.rule import LintRule, Subject, step_name

_CLOCKS = frozenset(f.name for f in CURRENT_TIMES) | {"UNIX_TIMESTAMP"}
_BY_CLOCK = WindowAggregate | WindowTableFunction | WindowRank | WindowJoin | IntervalJoin | Deduplicate | OverAggregate
_REMEDY = (
    "go by event time: declare a watermark on a column of the source, and use that column; or write the time into a column that no one "
    "compares"
)


def _find(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    for node in walk_plan(subject.written):
        if isinstance(node, _BY_CLOCK | MatchRecognize) and node.domain is TimeDomain.PROCESSING:
            what = (
                f"{step_name(node)} goes by processing time: which rows it puts together depends on when they are read"
            )
            yield what, _REMEDY, node.hints.location
        elif isinstance(node, Process) and node.windows is not None and node.windows.domain is TimeDomain.PROCESSING:
            what = f"the windows of {step_name(node)} go by processing time: which rows they hold depends on when they are read"
            yield what, _REMEDY, node.hints.location
    yield from _clock_columns(subject)


def _clock_columns(subject: Subject) -> Iterator[tuple[str, str, Location | None]]:
    """Columns of sinks that a function which reads the clock is a part of."""
    told: set[tuple[int, str]] = set()
    for sink in (*subject.written.sinks, *subject.written.letter_sinks.values()):
        for column, name in enumerate(sink.schema.names):
            for node, function in _clocks(sink, column):
                if (id(node), name) not in told:
                    told.add((id(node), name))
                    where = f"column '{name}' of sink '{sink.table.name}'"
                    what = f"{where} is made with {function}: it differs each time the rows are computed"
                    yield what, _REMEDY, node.hints.location


def _clocks(sink: Sink, column: int) -> Iterator[tuple[PlanNode, str]]:
    """The nodes that make a column with the clock, and by which function."""
    seen: set[tuple[int, int]] = set()
    pending: list[tuple[PlanNode, int]] = [(sink, column)]
    while pending:
        node, place = pending.pop()
        if (id(node), place) in seen:
            continue
        seen.add((id(node), place))
        for expression in _own_expressions(node, place):
            for part in walk(expression):
                if isinstance(part, Call) and part.function in _CLOCKS and not _is_given(part):
                    yield node, part.function
        pending += inputs_of(node, place)


def _is_given(call: Call) -> bool:
    """Whether it is UNIX_TIMESTAMP of a text, which reads no clock."""
    return bool(call.arguments)


def _own_expressions(node: PlanNode, column: int) -> Iterator[Expression]:
    """The expressions of a node that give one of its columns."""
    match node:
        case Calc() | Scan():
            yield node.projections[column]
        case Expand():
            yield from (projections[column] for projections in node.projections)
        case GroupAggregate() | WindowAggregate():
            yield from _arguments(node.aggregates, column - (len(node.schema) - len(node.aggregates)))
        case OverAggregate():
            yield from _arguments(node.calls, column - len(node.input.schema))
        case _:
            return


def _arguments(calls: tuple[AggregateCall, ...], number: int) -> Iterator[Expression]:
    if 0 <= number < len(calls):
        yield from calls[number].arguments


RULE = LintRule(
    "processing-time-in-results",
    "Results depend on when the pipeline runs.",
    "CURRENT_TIMESTAMP, PROCTIME() and their like in a column that is written, and windows, rankings and joins by processing time, give "
    "something else when the same rows are read again: after a failure, in a backfill, on Spark, and in `flowrun verify`. Event time gives "
    "the same each time. A join that asks a table outside (FOR SYSTEM_TIME AS OF a processing time) is not reported: asking it now is what "
    "it is for. A column that says when a row was written is seldom wrong: ignore the rule there.",
    _find,
)
