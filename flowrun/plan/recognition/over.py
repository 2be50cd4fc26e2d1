"""OVER without a condition on a rank: running aggregates, one node for all calls over the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit, RankFunction, SortKey, TimeDomain
from flowrun.core.types import BIGINT
from flowrun.plan.expressions import AggregateCall
from flowrun.plan.nodes import PlanNode
from flowrun.plan.recognition.context import Context, RecognitionError
from flowrun.plan.recognition.nodes_made import auxiliary, renamed, stateful_part, unique_name, written_name
from flowrun.plan.relational import Frame, Over, OverAggregate, OverCall

_RANKS = frozenset(f.value for f in RankFunction)
_BY_ROW = frozenset((*_RANKS, "LAG", "LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"))
"""Functions of a row's place in the order: they take no frame."""

_LOOKING_AHEAD = {
    "LEAD": "look back from the later row: LAG(…) OVER (PARTITION BY … ORDER BY …)",
    "NTILE": "number the rows instead: ROW_NUMBER() OVER (…)",
    "PERCENT_RANK": "rank the rows instead: RANK() OVER (…)",
    "CUME_DIST": "count the rows so far instead: COUNT(*) OVER (…)",
}
"""Functions whose result changes with later rows, and what to do instead where results are not corrected."""

_Group = tuple[tuple[int, ...], tuple[SortKey, ...], Frame]


def recognise_over(node: Over, context: Context) -> PlanNode:
    """The OVER as running aggregates, with the columns that it had.

    Raises:
        RecognitionError: the order is one that a stream cannot have.
    """
    return aggregates_only(node, node.calls, context)


def aggregates_only(node: Over, calls: Sequence[OverCall], context: Context) -> PlanNode:
    """The input's columns, then those of `calls`, some of the node's, in their order.

    Raises:
        RecognitionError: the order is one that a stream cannot have.
    """
    groups: dict[_Group, list[int]] = {}
    for i, call in enumerate(calls):
        groups.setdefault((call.partition, call.order, _frame(call)), []).append(i)
    below = node.input
    places: dict[int, int] = {}
    for number, ((partition, order, frame), members) in enumerate(groups.items(), 1):
        hints = node.hints if number == len(groups) else stateful_part(node.hints, f"over{number}")
        for member in members:
            _check_looks_back(node, calls[member], below, context)
        by_time = _ordering_attribute(order, below, context)
        any_order = context.batch or not order
        domain = by_time or (TimeDomain.EVENT if any_order else _domain(node, calls[members[0]], below, context))
        ahead = any(calls[m].call.function in _LOOKING_AHEAD for m in members)
        corrects = by_time is None or ahead or not frame.runs
        at_end = _covers_all(order, frame) and not context.state_ttl_ms and context.bounded(below)
        width = len(below.schema)
        fields = list(below.schema.fields)
        named = []
        for member in members:
            running = _running(calls[member].call)
            running = replace(running, name=unique_name(running.name, (f.name for f in fields)))
            fields.append(Field(running.name, running.type))
            named.append(running)
        schema = Schema(tuple(fields))
        below = OverAggregate(schema, hints, below, partition, order, domain, frame, tuple(named), corrects, at_end)
        places |= {member: width + i for i, member in enumerate(members)}
    width = len(node.input.schema)
    positions = [*range(width), *(places[i] for i in range(len(calls)))]
    names = [*node.input.schema.names, *(c.call.name for c in calls)]
    fields = [replace(below.schema.fields[p], name=n) for p, n in zip(positions, names, strict=True)]
    return renamed(below, Schema(tuple(fields)), positions, auxiliary(node.hints, "columns"))


def _frame(call: OverCall) -> Frame:
    if call.call.function in _BY_ROW:
        return Frame(FrameUnit.ROWS)
    return call.frame or Frame(FrameUnit.RANGE)


def _covers_all(order: tuple[SortKey, ...], frame: Frame) -> bool:
    """Whether a row's frame is its whole partition: RANGE without an order has all rows as peers."""
    return frame.is_whole or (not order and frame.unit is FrameUnit.RANGE)


def _running(call: AggregateCall) -> AggregateCall:
    """ROW_NUMBER as what it counts: the rows so far."""
    return replace(call, function="COUNT", type=BIGINT) if call.function == RankFunction.ROW_NUMBER.value else call


def _check_looks_back(node: Over, call: OverCall, input: PlanNode, context: Context) -> None:
    name = call.call.function
    by_frame = (
        name not in _BY_ROW and _frame(call).looks_ahead and _ordering_attribute(call.order, input, context) is not None
    )
    if context.batch or not (name in _LOOKING_AHEAD or by_frame) or not context.appends(input):
        return
    if by_frame and _frame(call).is_whole and not context.state_ttl_ms and context.bounded(input):
        return
    what = f"{name}() OVER" if name in _LOOKING_AHEAD else "a frame that ends FOLLOWING"
    raise RecognitionError(
        node,
        f"{what} needs rows that have not come yet: each row of a stream is answered once, when its time has come",
        _LOOKING_AHEAD.get(name, "end the frame at CURRENT ROW, or run the pipeline with --mode batch"),
    )


def _ordering_attribute(order: Sequence[SortKey], input: PlanNode, context: Context) -> TimeDomain | None:
    """The clock of the order if it is one time attribute ascending."""
    if len(order) != 1 or order[0].descending:
        return None
    return context.traits(input).attribute(order[0].column)


def _domain(node: Over, call: OverCall, input: PlanNode, context: Context) -> TimeDomain:
    """The clock of an order that is no time attribute, by which results are corrected: any over rows that change, columns over inserts.

    A descending time attribute over inserts is taken for a mistake: each row would change the results of all rows before it.
    """
    name = call.call.function
    by_columns = bool(call.order) and context.traits(input).attribute(call.order[0].column) is None
    if not context.appends(input) or (by_columns and name not in _RANKS):
        return TimeDomain.EVENT
    if name in _RANKS:
        raise RecognitionError(
            node,
            f"{name}() OVER needs a condition on its result, or one time attribute ascending as its order",
            "keep the first N ranks: SELECT … FROM (SELECT *, "
            f"{name}() OVER (PARTITION BY … ORDER BY …) AS rn FROM …) WHERE rn <= 3",
        )
    given = ", ".join(written_name(input, k.column) + (" DESC" if k.descending else "") for k in call.order)
    raise RecognitionError(
        node,
        f"{name} OVER needs one time attribute ascending as its order, not {given or 'none'}",
        "order by the column that WATERMARK FOR names (passed on unchanged), by a column AS PROCTIME(), or by columns that are no time: "
        "then results are corrected",
    )
