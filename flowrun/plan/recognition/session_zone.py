"""TIMESTAMP_LTZ in a session whose zone is not UTC: what reads one as a local time, or makes one of it, is given the zone.

Expressions are bound as in UTC. Here, before anything is recognised, casts between TIMESTAMP_LTZ and local times, the fields and the text
of an instant, and the functions of today's date become calls that name the zone, so that neither operators nor Spark know of sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.types import BIGINT, BOOLEAN, INT, STRING, DataType, TypeRoot, timestamp, timestamp_ltz
from flowrun.errors import PipelineError
from flowrun.functions.times.local_times import FROM_LOCAL, TO_LOCAL
from flowrun.plan.expressions import Call, Case, Cast, Expression, Literal, transform
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import Plan, PlanNode
from flowrun.plan.rewrites.traversal import map_expressions, map_plan
from flowrun.plan.traits import window_end_of, window_time

_LTZ, _LOCAL = TypeRoot.TIMESTAMP_LTZ, TypeRoot.TIMESTAMP
_FIELDS = (
    "EXTRACT", "YEAR", "QUARTER", "MONTH", "WEEK", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK", "HOUR", "MINUTE", "SECOND", "DATE_FORMAT",
)  # fmt: skip
"""Functions of an instant's local time whose result is no time. As in Flink, EPOCH counts the seconds of local time, too."""
_ROUNDED = ("FLOOR", "CEIL")
_TODAY = ("LOCALTIMESTAMP", "CURRENT_DATE", "LOCALTIME")
_UNIX_PATTERN = "yyyy-MM-dd HH:mm:ss"


def in_session_zone(plan: Plan) -> Plan:
    """The plan with expressions that mean in UTC what those of `plan` mean in the zone of its settings.

    Raises:
        PipelineError: a function has no meaning there yet.
    """
    zone = plan.settings.time_zone
    return plan if zone == UTC_ZONE else map_plan(plan, partial(_node_in_zone, zone=zone))


def _node_in_zone(node: PlanNode, zone: str) -> PlanNode:
    try:
        rewrite = partial(transform, rule=partial(_in_zone, zone=zone))
        if isinstance(node, MatchRecognize):
            defines = tuple((n, rewrite(e)) for n, e in node.defines)
            return replace(node, defines=defines, measures=tuple(rewrite(m) for m in node.measures))
        return map_expressions(node, rewrite)
    except _NotInZone as error:
        raise PipelineError.of(error.message, location=node.hints.location, hint=error.hint) from error


class _NotInZone(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def _in_zone(expression: Expression, zone: str) -> Expression:
    """An expression whose parts have been rewritten."""
    match expression:
        case Cast():
            return _cast(expression, zone)
        case Call():
            return _call(expression, zone)
    return expression


def _cast(cast: Cast, zone: str) -> Expression:
    given, wanted = cast.operand.type, cast.type
    if given.is_nested or wanted.is_nested:
        if _kinds(given) != _kinds(wanted):
            raise _NotInZone(
                f"a cast from {given} to {wanted} converts times inside of it, which is only done where the session's zone is UTC",
                "cast the fields one by one",
            )
        return cast
    if (given.root is _LTZ) is (wanted.root is _LTZ):
        return cast
    if given.root is _LTZ:
        return cast if wanted.is_numeric else replace(cast, operand=_to_local(cast.operand, zone))
    if given.is_numeric:
        return cast
    end = window_end_of(cast)
    if end is not None:
        return window_time(end, wanted, zone)
    local = _from_local(Cast(timestamp(wanted.precision or 0), cast.operand, cast.safe), zone)
    if not given.is_character:
        return local
    text = cast.operand
    zoned = [Call(BOOLEAN, "LIKE", (text, Literal(STRING, p))) for p in ("%Z", "%+00:00")]
    return Case(wanted, tuple((z, cast) for z in zoned), local)


def _kinds(type: DataType) -> tuple[object, ...]:
    """Which parts of a type are instants, which local times."""
    if type.children:
        return tuple(_kinds(c) for c in type.children)
    return (type.root if type.root in (_LTZ, _LOCAL) else None,)


def _call(call: Call, zone: str) -> Expression:
    roots = {a.type.root for a in call.arguments}
    if call.function in (FROM_LOCAL, TO_LOCAL):
        return call
    if call.function in _TODAY:
        local = _to_local(Call(timestamp_ltz(3), "CURRENT_TIMESTAMP", ()), zone)
        return local if call.type == local.type else Cast(call.type, local)
    if call.function == "FROM_UNIXTIME":
        seconds = Call(timestamp_ltz(3), "TO_TIMESTAMP_LTZ", (Cast(BIGINT, call.arguments[0]), Literal(INT, 0)))
        pattern = (*call.arguments[1:], Literal(STRING, _UNIX_PATTERN))[0]
        return Call(call.type, "DATE_FORMAT", (_to_local(seconds, zone), pattern))
    if call.function == "UNIX_TIMESTAMP" and call.arguments:
        raise _NotInZone(
            "UNIX_TIMESTAMP of a text reads it as UTC, and the session's zone is another",
            f"write TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(0, 3), TO_TIMESTAMP_LTZ(text, 'yyyy-MM-dd HH:mm:ss', '{zone}'))",
        )
    if _LTZ not in roots:
        return call
    if call.function in _FIELDS:
        return replace(call, arguments=tuple(_to_local(a, zone) for a in call.arguments))
    if call.function in _ROUNDED:
        rounded = replace(
            call, type=timestamp(call.type.precision or 0), arguments=tuple(_to_local(a, zone) for a in call.arguments)
        )
        return _from_local(rounded, zone)
    if _LOCAL in roots:  # compared, subtracted: both as instants
        return replace(call, arguments=_as_instants(call.arguments, zone))
    return call


def _as_instants(arguments: Sequence[Expression], zone: str) -> tuple[Expression, ...]:
    return tuple(_from_local(a, zone) if a.type.root is _LOCAL else a for a in arguments)


def _to_local(value: Expression, zone: str) -> Expression:
    if value.type.root is not _LTZ:
        return value
    return Call(timestamp(value.type.precision or 0), TO_LOCAL, (value, Literal(STRING, zone)))


def _from_local(value: Expression, zone: str) -> Expression:
    return Call(timestamp_ltz(value.type.precision or 0), FROM_LOCAL, (value, Literal(STRING, zone)))
