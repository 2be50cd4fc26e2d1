"""Recognition: one pass over a plan from its sources, each node rewritten over what its inputs have become."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flowrun.core.semantics import TimeDomain
from flowrun.errors import Diagnostic, PipelineError
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.joins import Join, TemporalJoin
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import Calc, Plan, PlanNode, Process, Scan, walk_plan
from flowrun.plan.recognition.conflicts import recognise_conflicts
from flowrun.plan.recognition.context import Context, RecognitionError
from flowrun.plan.recognition.filters import factor_conditions, push_into_joins
from flowrun.plan.recognition.join_order import order_joins
from flowrun.plan.recognition.joins import recognise_join
from flowrun.plan.recognition.nodes_made import written_name
from flowrun.plan.recognition.normalizing import normalize_sources
from flowrun.plan.recognition.over import recognise_over
from flowrun.plan.recognition.ranking import over_below, recognise_ranking
from flowrun.plan.recognition.session_zone import in_session_zone
from flowrun.plan.recognition.temporal import recognise_temporal_join
from flowrun.plan.recognition.unused_columns import drop_unused_columns
from flowrun.plan.recognition.windows import at_time, recognise_window_aggregate, resolve_window_function, time_domain
from flowrun.plan.relational import LAST_RANK, GroupAggregate, Over, Rank, TemporalSort, WindowTableFunction
from flowrun.plan.rewrites.traversal import map_plan, with_inputs, with_sinks
from flowrun.plan.tables import TableRole, reading_role


def recognise(plan: Plan) -> Plan:
    """The plan with general nodes as the special ones that they stand for; the same columns under the same names everywhere.

    Raises:
        PipelineError: all nodes that no operator can do, each with its place, what was expected and the nearest thing that works.
    """
    _check_that_lookups_are_asked(plan)
    plan, problems = normalize_sources(in_session_zone(plan))
    plan = order_joins(push_into_joins(factor_conditions(plan)))
    recognition = _Recognition(
        plan.text, Context(plan.settings.is_batch, plan.settings.time_zone, plan.settings.state_ttl_ms)
    )
    recognition.problems += [p.diagnostic(plan.text) for p in problems]
    for node in walk_plan(plan):
        recognition.add(node)
    if recognition.problems:
        raise PipelineError(recognition.problems)
    sinks = tuple(recognition.of(s) for s in plan.sinks)
    return _with_distinct_places(drop_unused_columns(with_sinks(plan, sinks)))


def _check_that_lookups_are_asked(plan: Plan) -> None:
    """Tables that can only be asked by key are on the right side of temporal joins, and nowhere else. Raises PipelineError."""
    problems: list[Diagnostic] = []
    asked: dict[int, Scan] = {}
    for node in walk_plan(plan):
        if isinstance(node, Scan) and reading_role(node.table.connector) is TableRole.LOOKUP:
            asked[id(node)] = node
        for side, below in enumerate(node.inputs):
            scan = asked.get(id(below))
            if scan is None or (isinstance(node, TemporalJoin) and side == 1):
                continue
            if isinstance(node, Calc):
                asked[id(node)] = scan
                continue
            problem = RecognitionError(
                scan,
                f"table '{scan.table.name}' can only be asked by key: connector '{scan.table.connector}' is no source",
                "join it: JOIN … FOR SYSTEM_TIME AS OF a processing time",
            ).diagnostic(plan.text)
            if problem not in problems:
                problems.append(problem)
    if problems:
        raise PipelineError(problems)


class _Recognition:
    """The memo of rewritten nodes by identity.

    An OVER stays as it is until something reads it that is no Calc, as the condition on a rank may stand in any Calc above it.
    """

    def __init__(self, text: str, context: Context) -> None:
        self._text = text
        self._context = context
        self._done: dict[int, PlanNode] = {}
        self._resolved: dict[int, tuple[PlanNode, PlanNode]] = {}
        self.problems: list[Diagnostic] = []

    def of(self, node: PlanNode) -> PlanNode:
        """What a node that has been added has become."""
        return self._done[id(node)]

    def add(self, node: PlanNode) -> None:
        """Rewrite a node whose inputs have been added. Nodes above a problem are left out."""
        if any(id(i) not in self._done for i in node.inputs):
            return
        try:
            self._done[id(node)] = self._recognised(node)
        except RecognitionError as error:
            problem = error.diagnostic(self._text)
            if problem not in self.problems:
                self.problems.append(problem)

    def _recognised(self, node: PlanNode) -> PlanNode:
        inputs = tuple(self._done[id(i)] for i in node.inputs)
        if isinstance(node, Calc):
            calc = with_inputs(node, inputs)
            assert isinstance(calc, Calc)
            return recognise_ranking(calc, self._context) or calc
        rebuilt = with_inputs(node, tuple(self._without_over(i) for i in inputs))
        context = self._context
        match rebuilt:
            case WindowTableFunction():
                return resolve_window_function(rebuilt, context)
            case GroupAggregate():
                return recognise_window_aggregate(rebuilt, context) or rebuilt
            case Join():
                return recognise_join(rebuilt, context)
            case TemporalJoin():
                return recognise_temporal_join(rebuilt, context)
            case TemporalSort():
                return _timed_sort(rebuilt, context)
            case ResolveConflicts():
                return recognise_conflicts(rebuilt, context)
            case MatchRecognize():
                return _timed_match(rebuilt, context)
            case Process():
                return _timed_process(rebuilt, context)
            case Rank(last=last) if last >= LAST_RANK and not context.batch:
                hint = "add LIMIT count, or run the pipeline with --mode batch"
                raise RecognitionError(rebuilt, "OFFSET without LIMIT keeps a stream's rows for ever", hint)
            case _:
                return rebuilt

    def _without_over(self, node: PlanNode) -> PlanNode:
        """The node with the OVER that is still below it, through Calcs, as running aggregates."""
        if over_below(node) is None:
            return node
        known = self._resolved.get(id(node))
        if known is None:
            if isinstance(node, Over):
                made = recognise_over(node, self._context)
            else:
                made = with_inputs(node, tuple(self._without_over(i) for i in node.inputs))
            known = self._resolved[id(node)] = (node, made)
        return known[1]


def _timed_sort(node: TemporalSort, context: Context) -> PlanNode:
    """The sort in the time domain of its first column; without one, the rows as they come if the order is optional."""
    first = node.order[0]
    name = written_name(node.input, first.column)
    domain = context.traits(node.input).attribute(first.column)
    if context.batch and (domain is None or first.descending):
        return node
    if domain is None or first.descending:
        if node.optional:
            return node.input
        what = "descending" if domain is not None else "which is no time attribute"
        raise RecognitionError(
            node,
            f"ORDER BY begins with '{name}', {what}: rows of a stream can be sorted by a time attribute ascending only",
            "add LIMIT n to keep the first n rows, or order by the column that WATERMARK FOR names; --mode batch sorts by any column",
        )
    return replace(node, domain=domain)


def _timed_match(node: MatchRecognize, context: Context) -> MatchRecognize:
    """The pattern in the time domain of the first column of its order."""
    if not node.order or node.order[0].descending:
        raise RecognitionError(
            node,
            "MATCH_RECOGNIZE needs ORDER BY a time attribute ascending",
            "write ORDER BY ts, where ts has a watermark",
        )
    return replace(
        node, domain=time_domain(node, node.input, node.order[0].column, "ORDER BY of MATCH_RECOGNIZE", context)
    )


def _timed_process(node: Process, context: Context) -> Process:
    """The function over rows whose event time is the column that the query names."""
    if node.called is None or node.called.time is None:
        return node
    domain = time_domain(node, node.input, node.called.time, "on_time", context)
    if domain is not TimeDomain.EVENT:
        name = written_name(node.input, node.called.time)
        raise RecognitionError(
            node, f"on_time needs event time, but '{name}' is the clock's", "name the column that WATERMARK FOR names"
        )
    return replace(node, input=at_time(node.input, node.called.time, context, node))


def _with_distinct_places(plan: Plan) -> Plan:
    """The plan with one node a place: a view's ranks, say, that two queries limit differently have been made twice."""
    counts: Counter[str] = Counter()

    def distinct(node: PlanNode) -> PlanNode:
        place = node.hints.place
        if place is None:
            return node
        counts[place] += 1
        if counts[place] == 1:
            return node
        return replace(node, hints=replace(node.hints, place=f"{place}#{counts[place]}"))

    return map_plan(plan, distinct)
