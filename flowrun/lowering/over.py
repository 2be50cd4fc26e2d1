"""Lowering of OVER: over rows that only come, in order of time; over rows that change, in any order."""

from __future__ import annotations

from decimal import Decimal

from flowrun.core.semantics import FrameUnit, TimeDomain
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import UnsupportedPlanError
from flowrun.graph.transformation import Transformation
from flowrun.lowering.aggregate_calls import bound_aggregate, column_position
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import keyed
from flowrun.lowering.ranking import place_of, sortable
from flowrun.operators.over.calls import FrameCall, OverFrame, Place, PlaceCall
from flowrun.operators.over.factories import AppendOverFactory, ChangelogOverFactory
from flowrun.plan.expressions import AggregateCall, Literal
from flowrun.plan.frames import frame_units
from flowrun.plan.nodes import PlanNode, Settings
from flowrun.plan.relational import OverAggregate

_PLACES = frozenset(p.value for p in Place)
_MS_IN = {3: 1, 6: 1_000, 9: 1_000_000}


def lower_over(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """OVER behind a shuffle by its keys; without keys it runs alone. The node's input has been prepared (see `window_inputs`).

    Raises:
        UnsupportedPlanError: a call needs rows that have not come, or RANGE an order that cannot be counted.
    """
    assert isinstance(node, OverAggregate)
    calls = tuple(_call(c) for c in node.calls)
    unit = node.frame.unit
    if inputs.changing or node.corrects or node.at_end:
        order = sortable(node, node.input.schema, node.order)
        preceding, following = (_units(node, bound) for bound in (node.frame.preceding, node.frame.following))
        corrected = ChangelogOverFactory(
            node.input.schema,
            node.schema,
            node.keys,
            OverFrame(unit, preceding, following),
            calls,
            order=order,
            ttl_ms=settings.state_ttl_ms,
            at_end=node.at_end,
        )
        return keyed(node, corrected, inputs.only, node.keys, "over")
    for call in calls:
        if isinstance(call, PlaceCall) and call.place.looks_ahead:
            raise UnsupportedPlanError(
                f"{place_of(node)}{call.place.value}() OVER needs rows that have not come yet: each row of a stream is answered"
                " once, when its time has come",
                hint=_HINTS[call.place],
            )
    event = node.domain is TimeDomain.EVENT
    if not event and node.frame.preceding is None:
        unit = FrameUnit.ROWS  # each row is an instant of its own, as in Flink
    time = node.order[0].column if event else None
    first = node.frame.preceding
    frame = OverFrame(unit, None if first is None else int(first))
    factory = AppendOverFactory(node.input.schema, node.schema, node.keys, frame, calls, time=time)
    return keyed(node, factory, inputs.only, node.keys, "over")


_HINTS = {
    Place.LEAD: "look back from the later row: LAG(…) OVER (PARTITION BY … ORDER BY …)",
    Place.NTILE: "number the rows instead: ROW_NUMBER() OVER (…)",
    Place.PERCENT_RANK: "rank the rows instead: RANK() OVER (…)",
    Place.CUME_DIST: "count the rows so far instead: COUNT(*) OVER (…)",
}


def _call(call: AggregateCall) -> FrameCall:
    if call.function not in _PLACES:
        return bound_aggregate(call)
    place = Place(call.function)
    arguments = call.arguments
    if place is Place.NTILE:
        return PlaceCall(call.name, place, call.type, offset=_constant(arguments[0]) if arguments else 1)
    if place not in (Place.LAG, Place.LEAD):
        return PlaceCall(call.name, place, call.type)
    offset = _constant(arguments[1]) if len(arguments) > 1 else 1
    default = arguments[2] if len(arguments) > 2 else None
    argument = column_position(arguments[0])
    if default is None or isinstance(default, Literal):
        value = default.value if default is not None else None
        return PlaceCall(call.name, place, call.type, argument, offset, default_value=value)
    return PlaceCall(call.name, place, call.type, argument, offset, default=column_position(default))


def _constant(expression: object) -> int:
    assert isinstance(expression, Literal)
    assert isinstance(expression.value, int)
    return expression.value


def _units(node: OverAggregate, bound: int | Decimal | None) -> int | float | None:
    """An end of the frame in what its operator counts: rows, units of the codes of the order's first column, or floats.

    Raises:
        UnsupportedPlanError: the order cannot be counted so.
    """
    if bound is None or node.frame.unit.value == FrameUnit.ROWS.value or bound == 0:
        return bound if bound is None else int(bound)
    if isinstance(bound, int):
        return bound * _units_in_ms(node)
    type = node.input.schema.types[node.order[0].column]
    if type.is_approximate:
        return float(bound)
    return frame_units(bound, type)


def _units_in_ms(node: OverAggregate) -> int:
    """How many units of the order's first column are a millisecond.

    Raises:
        UnsupportedPlanError: it is no point in time.
    """
    kind: DataType | None = node.input.schema.types[node.order[0].column] if node.order else None
    if kind is None or kind.root not in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        name = node.input.schema.names[node.order[0].column] if node.order else "nothing"
        raise UnsupportedPlanError(
            f"{place_of(node)}RANGE with an interval needs ORDER BY a TIMESTAMP, not {name} {kind or ''}".rstrip(),
            hint="use ROWS BETWEEN n PRECEDING AND CURRENT ROW, or RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        )
    precision = kind.precision or 0
    return _MS_IN[3 if precision <= 3 else 6 if precision <= 6 else 9]
