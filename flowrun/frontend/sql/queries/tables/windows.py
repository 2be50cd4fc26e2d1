"""Windows as queries write them: TUMBLE, HOP, CUMULATE and SESSION over a table, and those of GROUP BY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from sqlglot import exp

from flowrun.core.types import TypeRoot
from flowrun.errors import did_you_mean
from flowrun.frontend.sql.expressions.query_expressions import QueryExpressionBinder
from flowrun.frontend.sql.expressions.relations import Relation
from flowrun.frontend.sql.grammar.syntax import Descriptor, FunctionArgument, FunctionTable, TableArgument
from flowrun.frontend.sql.queries.nodes import NodeMaker
from flowrun.frontend.sql.queries.tables.arguments import partition_columns
from flowrun.frontend.sql.spans import Span, error_at, span_of
from flowrun.plan.expressions import ColumnRef, Expression, Literal
from flowrun.plan.folding import fold_constants
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import WindowTableFunction, window_columns
from flowrun.plan.windows import CumulativeWindow, SessionWindow, SlidingWindow, TumblingWindow, WindowSpec

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
WINDOW_USAGE = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE[, offset])",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE[, offset]) – slide, then size",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR[, offset]) – step, then size",
    "SESSION": "SESSION(TABLE t [PARTITION BY key], DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
}
GROUP_WINDOW_USAGE = {
    "TUMBLE": "TUMBLE(ts, INTERVAL '1' MINUTE)",
    "HOP": "HOP(ts, INTERVAL '10' SECOND, INTERVAL '1' MINUTE) – slide, then size",
    "SESSION": "SESSION(ts, INTERVAL '5' MINUTE)",
}


def is_window_function(name: str) -> bool:
    """Whether TABLE(name(…)) is a window."""
    return name.upper() in _PARAMETERS


def assigned_arguments(table: FunctionTable) -> dict[str, FunctionArgument]:
    """The arguments of a window function by parameter.

    Raises:
        ExpressionError: unknown or missing parameters, or a table, descriptor or interval in the wrong place.
    """
    name = table.name.text.upper()
    parameters = _PARAMETERS[name]
    found: dict[str, FunctionArgument] = {}
    for position, argument in enumerate(table.arguments):
        if argument.name is not None:
            key = argument.name.text.upper()
            if key not in parameters:
                hint = did_you_mean(key, parameters)
                raise error_at(f"{name} has no parameter '{argument.name.text}'", argument.name.span, hint)
        elif position >= len(parameters):
            raise error_at(
                f"{name} takes at most {len(parameters)} arguments", argument.span, f"usage: {WINDOW_USAGE[name]}"
            )
        else:
            key = parameters[position]
        if key in found:
            raise error_at(f"{key} of {name} is given twice", argument.span, f"usage: {WINDOW_USAGE[name]}")
        found[key] = argument
    missing = [p for p in parameters if p not in found and p != "OFFSET"]
    if missing:
        raise error_at(f"{name} needs {' and '.join(missing)}", table.span, f"usage: {WINDOW_USAGE[name]}")
    if not isinstance(found["DATA"].value, TableArgument):
        raise error_at(
            f"the first argument of {name} must be a table", found["DATA"].span, f"usage: {WINDOW_USAGE[name]}"
        )
    if not isinstance(found["TIMECOL"].value, Descriptor):
        raise error_at(
            f"the second argument of {name} must be DESCRIPTOR(column)",
            found["TIMECOL"].span,
            f"usage: {WINDOW_USAGE[name]}",
        )
    return found


def windowed(nodes: NodeMaker, table: FunctionTable, relation: Relation, binder: QueryExpressionBinder) -> PlanNode:
    """The node of TABLE(window(…)) over `relation`, whose columns `binder` knows; window columns follow the relation's.

    Raises:
        ExpressionError: wrong arguments; marks the place.
    """
    name = table.name.text.upper()
    arguments = assigned_arguments(table)
    data, descriptor = arguments["DATA"].value, arguments["TIMECOL"].value
    assert isinstance(data, TableArgument)
    assert isinstance(descriptor, Descriptor)
    if len(descriptor.columns) != 1:
        raise error_at(f"{name} takes one time column", descriptor.span, "write DESCRIPTOR(ts)")
    column = descriptor.columns[0]
    identifier = exp.to_identifier(column.text, quoted=True)
    identifier.meta["span"] = column.span
    time = binder.column(exp.Column(this=identifier))
    assert isinstance(time, ColumnRef)
    lengths = {}
    for key in ("SIZE", "SLIDE", "STEP", "GAP", "OFFSET"):
        argument = arguments.get(key)
        if argument is None:
            continue
        if isinstance(argument.value, TableArgument | Descriptor):
            raise error_at(f"{key} of {name} must be an interval", argument.span, f"usage: {WINDOW_USAGE[name]}")
        value = binder.bind(argument.value)
        lengths[key] = _interval(value, f"{key} of {name}", argument.span, WINDOW_USAGE[name], signed=key == "OFFSET")
    keys = _partition(name, data, binder)
    spec = _spec(name, lengths, table.span)
    hints = nodes.hints("window", descriptor.span)
    schema = window_columns(relation.schema, time.index)
    return WindowTableFunction(schema, hints, relation.node, spec, time.index, keys=keys)


def _partition(name: str, data: TableArgument, binder: QueryExpressionBinder) -> tuple[int, ...]:
    if data.order:
        raise error_at(f"{name} takes no ORDER BY", data.order[0].span, "windows follow the order of the time column")
    if data.partition and name != "SESSION":
        raise error_at(
            f"{name} takes no PARTITION BY: its windows are the same for all keys",
            span_of(data.partition[0]),
            "leave it out, and group by the columns",
        )
    return partition_columns(name, data, binder)


def _spec(name: str, lengths: Mapping[str, int], span: Span) -> WindowSpec:
    offset = lengths.get("OFFSET", 0)
    match name:
        case "TUMBLE":
            return TumblingWindow(lengths["SIZE"], offset)
        case "HOP":
            return SlidingWindow(lengths["SIZE"], lengths["SLIDE"], offset)
        case "CUMULATE":
            if lengths["SIZE"] % lengths["STEP"]:
                raise error_at(
                    "the size of CUMULATE must be a multiple of its step", span, f"usage: {WINDOW_USAGE[name]}"
                )
            return CumulativeWindow(lengths["SIZE"], lengths["STEP"], offset)
        case _:
            return SessionWindow(lengths["GAP"])


def group_window_spec(name: str, arguments: Sequence[Expression], node: exp.Expression) -> WindowSpec:
    """The window of GROUP BY TUMBLE(ts, size), HOP(ts, slide, size) or SESSION(ts, gap).

    Raises:
        ExpressionError: other arguments than these.
    """
    usage, span = GROUP_WINDOW_USAGE[name], span_of(node)
    wanted = 3 if name == "HOP" else 2
    if len(arguments) != wanted:
        raise error_at(f"{name} in GROUP BY takes {wanted} arguments, {len(arguments)} given", span, f"usage: {usage}")
    if not arguments[0].type.is_timestamp:
        raise error_at(f"{name} needs a time attribute, this is {arguments[0].type}", span, f"usage: {usage}")
    nodes: list[exp.Expression] = list(node.expressions)
    lengths = [
        _interval(a, f"argument {i + 2} of {name}", span_of(nodes[i + 1]), usage) for i, a in enumerate(arguments[1:])
    ]
    match name:
        case "TUMBLE":
            return TumblingWindow(lengths[0])
        case "HOP":
            return SlidingWindow(lengths[1], lengths[0])
        case _:
            return SessionWindow(lengths[0])


def _interval(value: Expression, what: str, span: Span, usage: str, *, signed: bool = False) -> int:
    constant = fold_constants(value)
    if (
        not isinstance(constant, Literal)
        or constant.type.root is not TypeRoot.INTERVAL_DAY_TIME
        or constant.value is None
    ):
        _wrong(f"{what} must be a constant interval of days to seconds, this is {value.type}", span, usage)
    if constant.value <= 0 and not signed:
        _wrong(f"{what} must be longer than nothing", span, usage)
    return int(constant.value)


def _wrong(message: str, span: Span, usage: str) -> NoReturn:
    raise error_at(message, span, f"usage: {usage}")
