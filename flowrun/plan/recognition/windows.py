"""Window table functions over time attributes, and aggregates over the windows that they give."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import TypeRoot, timestamp, timestamp_ltz
from flowrun.plan import windows
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.nodes import WINDOW_END, WINDOW_START, Calc, PlanNode, WindowAggregate
from flowrun.plan.recognition.context import Context, RecognitionError
from flowrun.plan.recognition.nodes_made import Extension, auxiliary, column, unique_name, written_name
from flowrun.plan.recognition.window_columns import Unwindowed, steps_over_window, without_window
from flowrun.plan.relational import AssignTime, GroupAggregate, WindowTableFunction
from flowrun.plan.traits import ATTACHED, Role, window_time

_TIME_HINT = (
    "declare WATERMARK FOR the column on its table and pass it on unchanged (a cast, GROUP BY or a regular join makes it an "
    "ordinary timestamp), or use a column defined AS PROCTIME()"
)
_NAMES = {
    windows.TumblingWindow: "TUMBLE",
    windows.SlidingWindow: "HOP",
    windows.CumulativeWindow: "CUMULATE",
    windows.SessionWindow: "SESSION",
}


def time_domain(node: PlanNode, input: PlanNode, time: int, what: str, context: Context) -> TimeDomain:
    """The clock of a column that must be a time attribute.

    Raises:
        RecognitionError: it is none; `what` begins the message.
    """
    domain = context.traits(input).attribute(time)
    if domain is None:
        name, type = written_name(input, time), input.schema.types[time]
        raise RecognitionError(
            node, f"{what} needs a time attribute, but '{name}' is an ordinary {type} column", _TIME_HINT
        )
    return domain


def resolve_window_function(node: WindowTableFunction, context: Context) -> WindowTableFunction:
    """The function in the time domain of the column that it is given, which for sessions is also the rows' event time.

    Raises:
        RecognitionError: that is no time attribute.
    """
    name = _NAMES.get(type(node.window), "a window")
    if context.batch and context.traits(node.input).attribute(node.time) is None:
        domain = TimeDomain.EVENT  # nothing is late there, whatever the column
    else:
        domain = time_domain(node, node.input, node.time, name, context)
    input = node.input
    if isinstance(node.window, windows.SessionWindow) and domain is TimeDomain.EVENT:
        input = at_time(input, node.time, context, node)
    return replace(node, input=input, domain=domain, window=_in_zone(node, context))


def _in_zone(node: WindowTableFunction, context: Context) -> windows.WindowSpec:
    """The window by the clocks of the session's zone, if its time is an instant: local times have no zone."""
    window = node.window
    if isinstance(window, windows.CountWindow | windows.GlobalWindow | windows.CustomWindow):
        return window
    instant = node.input.schema.types[node.time].root is TypeRoot.TIMESTAMP_LTZ
    if window.time_zone != UTC_ZONE and not instant:
        name, type = written_name(node.input, node.time), node.input.schema.types[node.time]
        raise RecognitionError(
            node,
            f"windows in {window.time_zone} need instants, but '{name}' is a {type}, a local time already",
            "declare the column as TIMESTAMP_LTZ, or leave time_zone out",
        )
    if window.time_zone != UTC_ZONE or not instant:
        return window
    return replace(window, time_zone=context.time_zone)


def recognise_window_aggregate(node: GroupAggregate, context: Context) -> PlanNode | None:
    """The aggregate as one over windows if it groups by both bounds of the rows' window; None if it is an ordinary one."""
    traits = context.traits(node.input)
    roles = [None if (t := traits.columns[k]) is None else t.role for k in node.keys]
    if Role.WINDOW_START not in roles or Role.WINDOW_END not in roles or not context.appends(node.input):
        return None
    return _over_function(node, context) or _over_windowed(node, context)


def at_time(input: PlanNode, time: int, context: Context, hints_of: PlanNode) -> PlanNode:
    """The rows with the column `time` as their event time."""
    if context.traits(input).is_current(time):
        return input
    return AssignTime(input.schema, auxiliary(hints_of.hints, "time"), input, time)


def _over_function(node: GroupAggregate, context: Context) -> PlanNode | None:
    """Over a window table function: its windows become the aggregate's, its rows are not multiplied."""
    found = steps_over_window(node.input)
    if found is None:
        return None
    function, steps = found
    input = function.input
    if function.domain is TimeDomain.EVENT:
        input = at_time(input, function.time, context, node)
    rows = without_window(function, steps, input, node.hints)
    if rows is None:
        return None
    places = [rows.places[k] for k in node.keys]
    calls = [rows.moved_call(c) for c in node.aggregates]
    if None in calls or None in places:
        return None
    keys = tuple(p for p in places if isinstance(p, int))
    if isinstance(function.window, windows.SessionWindow) and not _groups_as_sessions(function, rows, keys):
        return None
    window = _window_aggregate(
        node, rows.node, keys, function.window, tuple(c for c in calls if c is not None), function.domain
    )
    positions = iter(range(len(keys)))
    columns: list[Expression] = []
    for key, place in zip(node.keys, places, strict=True):
        if isinstance(place, Role):
            columns.append(_bound(window, place, node.input.schema.fields[key]))
        else:
            columns.append(column(window.schema, next(positions)))
    return _restored(node, window, columns)


def _groups_as_sessions(function: WindowTableFunction, rows: Unwindowed, keys: tuple[int, ...]) -> bool:
    """Whether the groups are those whose rows make the sessions: finer groups share the sessions of coarser ones."""
    return {rows.origins[k] for k in keys} == set(function.keys)


def _over_windowed(node: GroupAggregate, context: Context) -> PlanNode | None:
    """Over rows that have their window: they are grouped by its end, as event time, and its start, as a key.

    In processing time rows of a window come after its end; there the ordinary aggregate keeps the groups. A window that ends at a local
    time has its last instant as event time, which does not give its end where clocks change: there the end is a key as well.
    """
    traits = context.traits(node.input)
    window = traits.window
    if window is None or window.domain is TimeDomain.PROCESSING:
        return None
    roles = [None if (t := traits.columns[k]) is None else t.role for k in node.keys]
    input, zone = node.input, window.zone
    start, last = roles.index(Role.WINDOW_START), roles.index(Role.WINDOW_END)
    if not traits.at_window_time:
        extension = Extension.of(input, auxiliary(node.hints, "window time"))
        end = column(input.schema, node.keys[last])
        time = extension.position(window_time(end, timestamp(3) if zone == UTC_ZONE else timestamp_ltz(3), zone))
        extended = extension.build()
        input = AssignTime(extended.schema, auxiliary(node.hints, "time"), extended, time)
    bounds = (start,) if zone == UTC_ZONE else (start, last)
    kept = [i for i, r in enumerate(roles) if r in (None, Role.TIME) or i in bounds]
    aggregate = _window_aggregate(
        node, input, tuple(node.keys[i] for i in kept), ATTACHED, node.aggregates, TimeDomain.EVENT
    )
    columns: list[Expression] = []
    for i, role in enumerate(roles):
        type = node.input.schema.types[node.keys[i]]
        if role in (Role.WINDOW_END, Role.WINDOW_TIME) and last in kept:
            end = column(aggregate.schema, kept.index(last))
            columns.append(end if role is Role.WINDOW_END else window_time(end, type, zone))
        elif role in (Role.WINDOW_END, Role.WINDOW_TIME):
            columns.append(_bound(aggregate, role, node.input.schema.fields[node.keys[i]]))
        else:
            columns.append(column(aggregate.schema, kept.index(start if role is Role.WINDOW_START else i)))
    return _restored(node, aggregate, columns)


def _window_aggregate(
    node: GroupAggregate,
    input: PlanNode,
    keys: tuple[int, ...],
    window: windows.WindowSpec,
    calls: tuple[AggregateCall, ...],
    domain: TimeDomain,
) -> WindowAggregate:
    fields = [input.schema.fields[k] for k in keys]
    results = node.schema.fields[len(node.keys) :]
    taken = [f.name for f in (*fields, *results)]
    bounds = [Field(unique_name(b, taken), timestamp(3), False) for b in (WINDOW_START, WINDOW_END)]
    unique: list[Field] = []
    for field in (*fields, *bounds, *results):  # a key may be called as a result is
        unique.append(replace(field, name=unique_name(field.name, (f.name for f in unique))))
    named = tuple(replace(c, name=f.name) for c, f in zip(calls, unique[len(keys) + 2 :], strict=True))
    return WindowAggregate(Schema(tuple(unique)), node.hints, input, keys, window, named, domain)


def _bound(window: WindowAggregate, role: Role, field: Field) -> Expression:
    """A column of the window over the aggregate's output, of the type that it had."""
    start = len(window.keys)
    if role is Role.WINDOW_START:
        return column(window.schema, start)
    end = column(window.schema, start + 1)
    return end if role is Role.WINDOW_END else window_time(end, field.type, windows.window_zone(window.window))


def _restored(node: GroupAggregate, window: WindowAggregate, keys: list[Expression]) -> PlanNode:
    """The columns of the ordinary aggregate."""
    results = [column(window.schema, len(window.keys) + 2 + i) for i in range(len(node.aggregates))]
    return Calc(node.schema, auxiliary(node.hints, "columns"), window, (*keys, *results))
