"""Computes which event times a backfill must read so that it writes exactly the rows of a range.

A backfill of [from, to) writes the final rows whose event time lies in the range; the event time of a window's result is the end of the
window less 1 ms, so that windows that end in (from, to] are written, each by exactly one of the backfills of neighbouring ranges. What a
node must read for that depends on its state: a filter needs the same range, a window of an hour also the hour before, an outer interval
join also the rows after the range that may still match, and a node with unbounded state (GROUP BY, regular joins, top-N, sessions, …)
everything before `to`. Results that are updated or have no event time are the state of a table, and are written as they are at `to`.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.changelog import ChangelogMode
from flowrun.core.local_time import UTC_ZONE, WallClock
from flowrun.core.record import record
from flowrun.core.semantics import FrameUnit, TimeDomain
from flowrun.errors import InternalError, UnsupportedPlanError
from flowrun.plan import nodes, windows
from flowrun.plan.changelog import node_mode
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.co_process import CoProcess
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.description import Rows, node_description
from flowrun.plan.joins import IntervalJoin, Join, TemporalJoin, WindowJoin
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.relational import (
    AssignTime,
    Deduplicate,
    GroupAggregate,
    Keep,
    OverAggregate,
    Rank,
    Values,
    WindowRank,
    WindowTableFunction,
)
from flowrun.plan.traits import TraitIndex
from flowrun.spark.context import ALL_TIME, TimeRange
from flowrun.spark.time_spread import Spread, spread, window_function

_SAME = (
    nodes.Calc,
    nodes.Union,
    nodes.Split,
    nodes.SideOutput,
    nodes.PythonMap,
    nodes.AsyncMap,
    ToChangelog,
    FromChangelog,
)
"""Nodes whose rows have the event time of the row that they come from, besides nodes that pass on each row."""
_WITHOUT_BOUND = (GroupAggregate, Join, Rank, nodes.Process, CoProcess, ChangelogNormalize, ResolveConflicts)
_ANY_RANGE = TimeRange(0, 1)


@record
class Reading:
    """Which event times a backfill reads and writes.

    Attributes:
        bounds: `id` of each scan with event time → the event times to read; all other scans are read whole.
        stops: `id` of each node whose result later rows would change → the event time before which the rows that it reads must lie.
        written: `id` of each sink whose rows are final → the event times of the rows that it gets; other sinks get all their rows.
        remembering: nodes that need everything before the range, because their state is unbounded.
    """

    bounds: Mapping[int, TimeRange]
    stops: Mapping[int, int]
    written: Mapping[int, TimeRange]
    remembering: tuple[nodes.PlanNode, ...]


READ_ALL = Reading({}, {}, {}, ())
"""The reading of a run that is no backfill."""


def reading_for(plan: nodes.Plan, emitted: TimeRange) -> Reading:
    """What the scans of a plan must read for the rows of a range of event times.

    Raises:
        UnsupportedPlanError: a scan gives upserts, whose deletions may have no event time.
    """
    walked = list(nodes.walk_plan(plan))
    traits = TraitIndex()
    states = _states(walked)
    wanted: dict[int, TimeRange] = {}
    stops: dict[int, int] = {}
    for node in reversed(walked):  # a node comes before the nodes that it reads
        asked = wanted.get(id(node), TimeRange(None, emitted.stop) if id(node) in states else emitted)
        if asked.stop is not None and id(node) in states and any(id(i) not in states for i in node.inputs):
            stops[id(node)] = asked.stop
        for read, period in zip(node.inputs, _needed(node, asked, traits), strict=True):
            known = wanted.get(id(read))
            wanted[id(read)] = period if known is None else _both(known, period)
    bounds: dict[int, TimeRange] = {}
    for node in walked:
        if isinstance(node, nodes.Scan) and node.event_time:
            period = wanted.get(id(node), ALL_TIME)
            if node_mode(node, ()) is ChangelogMode.UPSERT and period != ALL_TIME:
                raise UnsupportedPlanError(
                    f"source '{node.table.name}' gives upserts, whose deletions may have no event time: "
                    "nothing says which of them belong to a range of time",
                    hint="run the whole table with --mode batch, or give it changes with the rows before them",
                )
            bounds[id(node)] = TimeRange(None, period.stop) if id(node) in states else period
    written = {id(s): emitted for s in plan.sinks if id(s) not in states}
    remembering = () if emitted.start is None else tuple(n for n in walked if _remembers(n, states, traits))
    return Reading(bounds, stops, written, remembering)


def tells_state(plan: nodes.Plan) -> frozenset[int]:
    """The `id` of each node whose rows are the state of a table at the end of the input: they are updated, or have no event time."""
    return _states(list(nodes.walk_plan(plan)))


def _states(walked: list[nodes.PlanNode]) -> frozenset[int]:
    found: set[int] = set()
    for node in walked:
        # a temporal join gives rows of its left side, to which the right one only adds columns
        passed = node.inputs[:1] if isinstance(node, TemporalJoin) else node.inputs
        if any(id(i) in found for i in passed) or not node.event_time or _ends_open(node):
            found.add(id(node))
    return frozenset(found)


def _ends_open(node: nodes.PlanNode) -> bool:
    """Whether later rows would change the result of the node."""
    match node:
        case nodes.Scan():
            return node_mode(node, ()) is not ChangelogMode.APPEND
        case Deduplicate(keep=keep):
            return keep is Keep.LAST
        case nodes.WindowAggregate(window=windows.GlobalWindow(), trigger=None):
            return True
        case _:
            return False


def _remembers(node: nodes.PlanNode, states: frozenset[int], traits: TraitIndex) -> bool:
    if isinstance(node, nodes.Scan):
        return node.event_time and id(node) in states
    needed = zip(node.inputs, _needed(node, _ANY_RANGE, traits), strict=True)
    return any(period.start is None and read.event_time for read, period in needed)


def _both(one: TimeRange, other: TimeRange) -> TimeRange:
    starts, stops = (one.start, other.start), (one.stop, other.stop)
    return TimeRange(
        None if None in starts else min(s for s in starts if s is not None),
        None if None in stops else max(s for s in stops if s is not None),
    )


def _needed(node: nodes.PlanNode, wanted: TimeRange, traits: TraitIndex) -> tuple[TimeRange, ...]:
    """The event times that each input must give, so that the node gives the rows of the wanted range."""
    match node:
        case nodes.Scan() | Values():
            return ()
        case (
            WindowTableFunction(window=windows.SessionWindow())
            | nodes.WindowAggregate(window=windows.SessionWindow() | windows.CustomWindow())
        ):
            # a row at the end of a session belongs to it: whether there is one must be seen for a session that ends at `to`
            return (TimeRange(None, None if wanted.stop is None else wanted.stop + 1),)
        case nodes.WindowAggregate():
            return (_rows_of_windows(node.window, wanted),)
        case WindowRank() | WindowJoin():
            return tuple(_window_needs(i, wanted, traits) for i in node.inputs)
        case AssignTime():
            return (_by_column(wanted, spread(node.input, node.column, traits)),)
        case OverAggregate():
            return (_over_needs(node, wanted, traits),)
        case Deduplicate() | MatchRecognize():
            column = node.time if isinstance(node, Deduplicate) else node.order[0].column
            return (_earlier(_by_column(wanted, spread(node.input, column, traits)), None),)
        case IntervalJoin():
            return _interval_needs(node, wanted, traits)
        case TemporalJoin():
            return _temporal_needs(node, wanted, traits)
        case _ if isinstance(node, _SAME) or node_description(type(node)).rows in (Rows.EACH, Rows.REPEATED):
            return tuple(wanted for _ in node.inputs)
        case _ if isinstance(node, _WITHOUT_BOUND):
            return tuple(_earlier(wanted, None) for _ in node.inputs)
        case _:
            raise InternalError(f"there is no rule for what {type(node).__name__} reads of a range")


def _earlier(wanted: TimeRange, memory_ms: int | None) -> TimeRange:
    """The range, and the time of `memory_ms` before it; None: all time before it."""
    if memory_ms is None or wanted.start is None:
        return TimeRange(None, wanted.stop)
    return TimeRange(wanted.start - memory_ms, wanted.stop)


def _by_column(wanted: TimeRange, spread: Spread | None) -> TimeRange:
    """The event times of rows that have a value of the range in a time column."""
    if spread is None:
        return ALL_TIME
    return TimeRange(
        None if wanted.start is None else wanted.start - spread.after_ms,
        None if wanted.stop is None else wanted.stop + spread.before_ms,
    )


_GREATEST_CHANGE_MS = 25 * 3_600_000
"""By how much clocks are set back at most: the first of several instants of a local time is at most so long before the last."""


def _rows_of_windows(window: windows.WindowSpec, wanted: TimeRange) -> TimeRange:
    """The event times of the rows of all windows that end in a range."""
    if wanted.start is None:
        return wanted
    zone = windows.window_zone(window)
    if zone == UTC_ZONE:
        return TimeRange(_first_row(window, wanted.start), wanted.stop)
    clock = WallClock(zone)
    start = _first_row(window, clock.reached(wanted.start - 1) + 1)
    return TimeRange(None if start is None else clock.instant(start) - _GREATEST_CHANGE_MS, wanted.stop)


def _first_row(window: windows.WindowSpec, after: int) -> int | None:
    """The beginning of the first window that ends after a time; None: it may be any time."""
    match window:
        case windows.TumblingWindow(size_ms=size, offset_ms=offset):
            return _next(after, size, offset) - size
        case windows.SlidingWindow(size_ms=size, slide_ms=slide, offset_ms=offset):
            return _next(after, slide, offset + size) - size
        case windows.CumulativeWindow(size_ms=size, step_ms=step, offset_ms=offset):
            return _next(_next(after, step, offset) - 1, size, offset) - size
        case windows.SessionWindow() | windows.CountWindow() | windows.GlobalWindow() | windows.CustomWindow():
            return None


def _next(after: int, step: int, offset: int) -> int:
    """The first multiple of `step`, plus `offset`, after a time.

    >>> _next(9, 10, 0), _next(10, 10, 0), _next(10, 10, 3)
    (10, 20, 13)
    """
    return after + step - (after - offset) % step


def _window_needs(input: nodes.PlanNode, wanted: TimeRange, traits: TraitIndex) -> TimeRange:
    """What a node needs that gets rows with a window: results of windows have the time of its end, other rows any time in it."""
    if traits[input].at_window_time:
        return wanted
    function = window_function(input)
    if function is None:
        return ALL_TIME
    return _by_column(_rows_of_windows(function.window, wanted), spread(function.input, function.time, traits))


def _over_needs(node: OverAggregate, wanted: TimeRange, traits: TraitIndex) -> TimeRange:
    """What an OVER aggregate needs: inserted rows have the event time that they are ordered by, updated ones their own."""
    preceding = node.frame.preceding
    bounded = node.frame.unit is FrameUnit.RANGE and isinstance(preceding, int)
    needed = _earlier(wanted, int(preceding) if bounded and preceding is not None else None)
    if node.corrects or not node.order or traits[node.input].attribute(node.order[0].column) is not TimeDomain.EVENT:
        return _earlier(wanted, None)
    return _by_column(needed, spread(node.input, node.order[0].column, traits))


def _interval_needs(node: IntervalJoin, wanted: TimeRange, traits: TraitIndex) -> tuple[TimeRange, TimeRange]:
    """What each side needs before, and for rows that may stay without a match also after the range.

    A pair has left + lower ≤ right ≤ left + upper and counts at the later of the two.
    """
    left_before, right_before = max(node.upper_ms, 0), max(-node.lower_ms, 0)
    left, right = _earlier(wanted, left_before), _earlier(wanted, right_before)
    if wanted.stop is not None:
        if node.kind.keeps_left:
            right = TimeRange(right.start, wanted.stop + left_before)
        if node.kind.keeps_right:
            left = TimeRange(left.start, wanted.stop + right_before)
    return (
        _by_column(left, spread(node.left, node.left_time, traits)),
        _by_column(right, spread(node.right, node.right_time, traits)),
    )


def _temporal_needs(node: TemporalJoin, wanted: TimeRange, traits: TraitIndex) -> tuple[TimeRange, TimeRange]:
    """What each side of a temporal join needs: the left one the rows themselves, the right one all versions before the end of the range."""
    history = _earlier(wanted, None)
    if node.right_time is None:
        return wanted, history
    left = _by_column(wanted, spread(node.left, node.left_time, traits))
    return left, _by_column(history, spread(node.right, node.right_time, traits))
