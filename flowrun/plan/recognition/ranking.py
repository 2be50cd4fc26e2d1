"""ROW_NUMBER, RANK and DENSE_RANK with a condition on the rank above: top-N, deduplication and their forms within windows."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import RankFunction, SortKey, TimeDomain
from flowrun.core.types import BIGINT
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import Expression, Literal, columns_used, substitute
from flowrun.plan.nodes import Calc, PlanNode
from flowrun.plan.recognition.context import Context
from flowrun.plan.recognition.nodes_made import column
from flowrun.plan.recognition.over import aggregates_only
from flowrun.plan.recognition.rank_bounds import RankBounds, rank_bounds
from flowrun.plan.relational import Deduplicate, Keep, Over, OverCall, Rank, WindowRank
from flowrun.plan.traits import Role

RANKS = {f.value: f for f in RankFunction}


def over_below(node: PlanNode) -> tuple[Over, tuple[Calc, ...]] | None:
    """The OVER below a node through Calcs, and those, highest first; None if there is none."""
    steps = []
    while isinstance(node, Calc):
        steps.append(node)
        node = node.input
    return (node, tuple(steps)) if isinstance(node, Over) else None


def recognise_ranking(node: Calc, context: Context) -> PlanNode | None:
    """A Calc over OVER with a condition on a rank, as top-N or deduplication and what is left to do above it.

    None if it has no such condition, or no rank below it.
    """
    found = over_below(node)
    if found is None:
        return None
    over, steps = found
    projections, condition = _composed(steps)
    parts = conjuncts(condition)
    width = len(over.input.schema)
    for position, call in enumerate(over.calls):
        if call.call.function in RANKS:
            bounds = rank_bounds(parts, width + position)
            if bounds is not None:
                return _ranked(node, over, position, bounds, projections, context)
    return None


def _composed(steps: Sequence[Calc]) -> tuple[tuple[Expression, ...], Expression | None]:
    """Projections and condition of a chain of Calcs, highest first, over what is below it."""
    projections: tuple[Expression, ...] = steps[0].projections
    condition = steps[0].condition
    for step in steps[1:]:
        projections = tuple(substitute(p, step.projections) for p in projections)
        above = None if condition is None else substitute(condition, step.projections)
        condition = conjunction([*conjuncts(step.condition), *conjuncts(above)])
    return projections, condition


@record
class _Ranked:
    """A ranking node, and where the rank is in its output: a column, or this constant."""

    node: PlanNode
    rank: Expression


def _ranked(
    above: Calc,
    over: Over,
    position: int,
    bounds: RankBounds,
    projections: tuple[Expression, ...],
    context: Context,
) -> PlanNode:
    width = len(over.input.schema)
    others = tuple(c for i, c in enumerate(over.calls) if i != position)
    input = aggregates_only(over, others, context) if others else over.input
    rank_index = width + position
    used = {i for e in (*projections, *bounds.rest) for i in columns_used(e)}
    ranked = _ranking(over, over.calls[position], input, bounds, rank_index in used, context)
    # columns of the OVER node in the ranking's output: the other calls moved up by one behind the rank's place
    columns: list[Expression] = [column(ranked.node.schema, i) for i in range(width + len(others))]
    columns.insert(width + position, ranked.rank)
    given = tuple(columns)
    condition = conjunction(substitute(p, given) for p in bounds.rest)
    return Calc(above.schema, above.hints, ranked.node, tuple(substitute(p, given) for p in projections), condition)


def _ranking(
    over: Over, call: OverCall, input: PlanNode, bounds: RankBounds, rank_used: bool, context: Context
) -> _Ranked:
    function = RANKS[call.call.function]
    traits = context.traits(input)
    partition = tuple(dict.fromkeys(call.partition))
    roles = {k: t.role for k in partition if (t := traits.columns[k]) is not None}
    appends = context.appends(input)
    constant = function is RankFunction.ROW_NUMBER and bounds.first == bounds.last
    with_rank = rank_used and not constant
    window = traits.window
    first_by_time = _time_order(call.order, input, context) if constant and bounds.last == 1 else None
    if appends and window is not None and {Role.WINDOW_START, Role.WINDOW_END} <= set(roles.values()):
        bound = {role: k for k, role in roles.items()}
        others = tuple(
            k for k in partition if roles.get(k) not in (Role.WINDOW_START, Role.WINDOW_END, Role.WINDOW_TIME)
        )
        schema = _schema(input.schema, call, with_rank)
        node: PlanNode = WindowRank(
            schema, over.hints, input, (bound[Role.WINDOW_START], bound[Role.WINDOW_END]), others, call.order, function,
            bounds.first, bounds.last, with_rank, window.domain, first_by_time is not None and call.order[0].descending,
            window.zone,
        )  # fmt: skip
    elif appends and first_by_time is not None:
        key = call.order[0]
        keep = Keep.LAST if key.descending else Keep.FIRST
        node = Deduplicate(input.schema, over.hints, input, partition, key.column, keep, first_by_time)
    else:
        schema = _schema(input.schema, call, with_rank)
        node = Rank(schema, over.hints, input, partition, call.order, function, bounds.first, bounds.last, with_rank)
    # two queries may ask the same of one view: one node ranks for both
    node = context.shared.setdefault((id(over), call, bounds.first, bounds.last, with_rank), node)
    rank: Expression = Literal(BIGINT, bounds.first)
    if with_rank:
        rank = column(node.schema, len(input.schema))
    return _Ranked(node, rank)


def _time_order(order: Sequence[SortKey], input: PlanNode, context: Context) -> TimeDomain | None:
    """The clock of the order, if it is one time attribute and nothing else."""
    return context.traits(input).attribute(order[0].column) if len(order) == 1 else None


def _schema(input: Schema, call: OverCall, with_rank: bool) -> Schema:
    if not with_rank:
        return input
    name = call.call.name
    while name in input.names:
        name += "_"
    return Schema((*input.fields, Field(name, BIGINT, False)))
