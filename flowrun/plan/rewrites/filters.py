"""The rule that tells sources which rows will not be needed; that depends on whether anything goes by their event time."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal

from flowrun.api.connector import Comparison, PushedFilter, PushedValue
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import DataType, TypeRoot
from flowrun.plan.conditions import conjuncts
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.description import Meaning, Rows, node_description
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, InList, Literal
from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, Sink, WatermarkKind, WatermarkSpec, walk_plan
from flowrun.plan.relational import (
    Deduplicate,
    WindowTableFunction,
)
from flowrun.plan.rewrites.traversal import map_plan, reader_counts
from flowrun.plan.windows import SessionWindow

_COMPARISONS = {c.value: c for c in Comparison}
_MIRRORED = {
    Comparison.EQ: Comparison.EQ,
    Comparison.NE: Comparison.NE,
    Comparison.LT: Comparison.GT,
    Comparison.LE: Comparison.GE,
    Comparison.GT: Comparison.LT,
    Comparison.GE: Comparison.LE,
}
_EPOCH = dt.datetime(1970, 1, 1)
_WIDENED = (TypeRoot.DECIMAL, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_NEVER_PUSHED = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


def push_filter_hints(plan: Plan) -> Plan:
    """Conjuncts `column op constant` and `column IN (…)` of a Calc right above a Scan become hints of the Scan; the Calc keeps its
    condition.

    Only if nothing else reads the Scan. If something goes by its event time, then only lower bounds of the event time itself: a source
    that skips other rows would measure event time by the rest alone, and which rows are late would depend on how files are stored.
    (Rows before the bound cannot bring the watermark to where it passes one that is kept.) Floating point is left out: statistics
    ignore NaN.
    """
    readers = reader_counts(plan)
    timed = with_used_event_time(plan)
    single = {id(n): id(n) in timed for n in walk_plan(plan) if isinstance(n, Scan) and readers[id(n)] == 1}

    def push(node: PlanNode) -> PlanNode:
        if not isinstance(node, Calc) or not isinstance(node.input, Scan) or id(node.input) not in single:
            return node
        scan = node.input
        hints = [h for part in conjuncts(node.condition) for h in _hints(part, scan)]
        if scan.watermark is not None and single[id(scan)]:
            hints = [h for h in hints if _bounds_event_time(h, scan, scan.watermark)]
        kept = tuple(dict.fromkeys(hints))
        return replace(node, input=replace(scan, filters=kept)) if kept else node

    return map_plan(plan, push)


def _bounds_event_time(hint: PushedFilter, scan: Scan, mark: WatermarkSpec) -> bool:
    time = mark.time
    lower = hint.comparison in (Comparison.GE, Comparison.GT)
    bounded = mark.kind in (WatermarkKind.BOUNDED, WatermarkKind.NONE)
    return lower and bounded and isinstance(time, ColumnRef) and scan.physical.names[time.index] == hint.column


def _hints(conjunct: Expression, scan: Scan) -> tuple[PushedFilter, ...]:
    match conjunct:
        case InList(negated=False):
            return _list_hints(conjunct, scan)
        case ColumnRef():
            column = _physical_column(conjunct, scan)
            return () if column is None else (PushedFilter(column, Comparison.EQ, True),)
        case _:
            hint = _hint(conjunct, scan)
            return () if hint is None else (hint,)


def _list_hints(conjunct: InList, scan: Scan) -> tuple[PushedFilter, ...]:
    """The bounds of the values; one value as itself."""
    operand = _without_widening(conjunct.operand)
    column = _physical_column(operand, scan)
    constants = [Literal(conjunct.operand.type, v) for v in conjunct.values if v is not None]
    if column is None or not constants or not all(_fits(c, operand.type) for c in constants):
        return ()
    least = _pushed_value(min(c.value for c in constants))
    most = _pushed_value(max(c.value for c in constants))
    if least is None or most is None:
        return ()
    if least == most:
        return (PushedFilter(column, Comparison.EQ, least),)
    return (PushedFilter(column, Comparison.GE, least), PushedFilter(column, Comparison.LE, most))


def _hint(conjunct: Expression, scan: Scan) -> PushedFilter | None:
    if not isinstance(conjunct, Call) or conjunct.function not in _COMPARISONS:
        return None
    comparison = _COMPARISONS[conjunct.function]
    if comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL):
        column = _physical_column(conjunct.arguments[0], scan)
        return None if column is None else PushedFilter(column, comparison)
    left, right = conjunct.arguments
    if isinstance(left, Literal):
        left, right, comparison = right, left, _MIRRORED[comparison]
    left = _without_widening(left)
    column = _physical_column(left, scan)
    if column is None or not isinstance(right, Literal) or right.value is None or not _fits(right, left.type):
        return None
    value = _pushed_value(right.value)
    return None if value is None else PushedFilter(column, comparison, value)


def _without_widening(expression: Expression) -> Expression:
    """The column below a cast that the comparison needed and that changes no value: to more digits of the same kind."""
    if not isinstance(expression, Cast) or not isinstance(expression.operand, ColumnRef):
        return expression
    return expression.operand if _holds(expression.type, expression.operand.type) else expression


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of one type is one of the other: a source must not skip rows whose cast would fail or round."""
    if narrow.is_integer and wide.is_integer:
        return bool(wide.arrow.bit_width >= narrow.arrow.bit_width)
    if narrow.root is not wide.root or narrow.root not in _WIDENED:
        return False
    scales = wide.scale or 0, narrow.scale or 0
    digits = (wide.precision or 0) - scales[0], (narrow.precision or 0) - scales[1]
    return scales[0] >= scales[1] and digits[0] >= digits[1]


def _fits(constant: Literal, column: DataType) -> bool:
    """Whether the constant is a value that the column could hold; outside of its range the hint could not be expressed."""
    if column.is_integer and isinstance(constant.value, int):
        bits: int = column.arrow.bit_width
        return -(1 << (bits - 1)) <= constant.value < 1 << (bits - 1)
    return True


def _physical_column(expression: Expression, scan: Scan) -> str | None:
    """The physical column that the expression over the scan's output simply is."""
    if not isinstance(expression, ColumnRef):
        return None
    projection = scan.projections[expression.index]
    if not isinstance(projection, ColumnRef) or projection.type.root in _NEVER_PUSHED:
        return None
    return scan.physical.names[projection.index]


def _pushed_value(value: object) -> PushedValue:
    """A constant in the column's Arrow domain as a plain value; None if it has none."""
    match value:
        case bool() | int() | str() | bytes():
            return value
        case Decimal():
            return str(value)
        case dt.datetime():
            naive = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
            micros = (naive - _EPOCH) // dt.timedelta(microseconds=1)
            # ms must be exact: a rounded bound could skip a row that belongs to the result
            return micros // 1000 if micros % 1000 == 0 else None
        case dt.date():
            return (value - _EPOCH.date()).days
        case _:
            return None


_COMMIT = "sink.partition-commit."


def with_used_event_time(plan: Plan) -> frozenset[int]:
    """Identities of the nodes whose rows' event time or watermarks make a difference to a result: windows, joins and sorts by event
    time, users' functions, ON CONFLICT, and sinks that mark complete partitions, stand after them.
    """
    used: set[int] = set()
    for node in reversed(list(walk_plan(plan))):  # readers before what they read
        if id(node) in used or _uses(node):
            used.update(id(i) for i in node.inputs)
    return frozenset(used)


def _uses(node: PlanNode) -> bool:
    description = node_description(type(node))
    match node:
        case ResolveConflicts():
            return True  # watermarks say when rows are compared
        case Sink():
            return any(key.startswith(_COMMIT) for key in node.table.options)
        case WindowTableFunction(window=window) if not isinstance(window, SessionWindow):
            return False  # the window of a row is that of its time column
        case Deduplicate():
            return False
        case _:
            timed = any(getattr(node, f.name) is TimeDomain.EVENT for f in description.of(Meaning.CLOCK))
            return timed or description.rows is Rows.USER
