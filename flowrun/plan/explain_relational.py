"""What relational nodes do, as details of an explained plan."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from flowrun.core.elements import RowKind
from flowrun.core.schema import Schema
from flowrun.core.semantics import FrameUnit, NullOrder, SortKey
from flowrun.core.units import format_duration
from flowrun.plan import relational as rel
from flowrun.plan.changelog_nodes import FromChangelog, ToChangelog
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.description import node_description
from flowrun.plan.expressions import AggregateCall
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.matching import AfterMatch, MatchRecognize, PatternVariable
from flowrun.plan.nodes import PlanNode

Details = dict[str, Any]  # Any: JSON values
_MOST_VALUES = 10
_QUANTIFIERS = {(1, 1): "", (1, None): "+", (0, None): "*", (0, 1): "?"}


def relational_details(node: PlanNode, window: str | None = None) -> Details:
    """What a relational node does, in a fixed order. `window`: its window as words, if it has one."""
    match node:
        case Join() | WindowJoin() | IntervalJoin() | TemporalJoin() | LookupJoin():
            return _join(node)
        case rel.Rank() | rel.WindowRank() | rel.Deduplicate():
            return _ranking(node)
        case rel.OverAggregate():
            over: Details = {
                "keys": _names(node.input.schema, node.keys),
                "order": order_text(node.input.schema, node.order),
                "frame": frame_text(node.frame),
                "aggregates": _calls(node.calls),
            }
            return {**over, "sends": "each row once, when the input has ended"} if node.at_end else over
        case MatchRecognize():
            return _match(node)
        case rel.WindowTableFunction():
            details: Details = {"window": f"{window} of {node.domain.value} time"}
            details["time"] = node.input.schema.names[node.time]
            return {**details, **({"keys": _names(node.input.schema, node.keys)} if node.keys else {})}
        case _:
            return _rows(node)


def _rows(node: PlanNode) -> Details:
    match node:
        case rel.Values():
            shown = [f"({', '.join(map(str, row))})" for row in node.rows[:_MOST_VALUES]]
            more = len(node.rows) - len(shown)
            return {"rows": [*shown, *([f"and {more} more"] if more else [])]}
        case rel.AssignTime():
            return {"time": node.input.schema.names[node.column]}
        case rel.Expand():
            return {"sets": [f"({', '.join(map(str, p))})" for p in node.projections]}
        case ToChangelog():
            return {"operation": node.schema.names[-1], "codes": _codes(node), **_together(node)}
        case FromChangelog():
            operation = {"operation": node.input.schema.names[node.operation], "codes": _codes(node)}
            return {**operation, **({"others": "skip"} if node.skip else {}), **_together(node)}
        case ResolveConflicts():
            return {"keys": _names(node.schema, node.keys), "on conflict": f"DO {node.action.value}"}
        case rel.Unnest():
            marks = [m for m, on in (("outer", node.outer), ("ordinality", node.ordinality)) if on]
            return {"collection": node.input.schema.names[node.collection], **({"with": marks} if marks else {})}
        case rel.TableFunctionCall():
            call = f"{node.function}({', '.join(map(str, node.arguments))})"
            return {"function": call, **({"with": ["outer"]} if node.outer else {})}
        case _:
            return _described(node)


def _described(node: PlanNode) -> Details:
    """Of a node without words of its own: what it says of the columns of its inputs, under the names of its fields."""
    description = node_description(type(node))
    inputs = dict(zip(description.inputs, node.inputs, strict=False))
    return {
        f.name: _entries(getattr(node, f.name), [inputs[n].schema for n in f.over if n in inputs])
        for f in description.over_inputs
        if getattr(node, f.name) is not None
    }


def _entries(value: object, schemas: Sequence[Schema]) -> Any:
    match value:
        case tuple():
            return [text for entry in value for text in _as_list(_entries(entry, schemas))]
        case int():
            return [name for schema in schemas for name in schema.names][value]
        case SortKey():
            return order_text(schemas[0], [value])
        case AggregateCall():
            return f"{value} AS {value.name}"
        case rel.OverCall(call=call):
            return f"{call} AS {call.name}"
        case _:
            return str(value)


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _codes(node: ToChangelog | FromChangelog) -> list[str]:
    return [f"'{text}' {RowKind(kind).symbol}" for text, kind in node.codes]


def _together(node: ToChangelog | FromChangelog) -> Details:
    return {"keys": _names(node.input.schema, node.keys)} if node.keys else {}


def _join(node: Join | WindowJoin | IntervalJoin | TemporalJoin | LookupJoin) -> Details:
    details: Details = {"kind": node.kind.value}
    if isinstance(node, LookupJoin):
        details["table"] = f"{node.table.name} ({node.table.connector})"
        details["on"] = [f"{expression} = {column}" for expression, column in node.keys]
    else:
        left, right = node.left.schema.names, node.right.schema.names
        safe = node.null_safe if isinstance(node, Join) and node.null_safe else (False,) * len(node.left_keys)
        signs = ["IS NOT DISTINCT FROM" if s else "=" for s in safe]
        pairs = zip(node.left_keys, signs, node.right_keys, strict=True)
        details["on"] = [f"{left[a]} {sign} {right[b]}" for a, sign, b in pairs]
        details |= _times(node)
    if node.condition is not None:
        details["where"] = str(node.condition)
    return details


def _times(node: Join | WindowJoin | IntervalJoin | TemporalJoin) -> Details:
    left, right = node.left.schema.names, node.right.schema.names
    match node:
        case WindowJoin():
            return {
                "window": f"{left[node.left_window[1]]} = {right[node.right_window[1]]} of {node.domain.value} time"
            }
        case IntervalJoin():
            time = left[node.left_time]
            low, high = (_moved(time, ms) for ms in (node.lower_ms, node.upper_ms))
            return {"interval": f"{right[node.right_time]} BETWEEN {low} AND {high} of {node.domain.value} time"}
        case TemporalJoin():
            return {"as_of": f"{left[node.left_time]} of {node.domain.value} time"}
        case _:
            return {}


def _moved(time: str, ms: int) -> str:
    return time if not ms else f"{time} {'+' if ms > 0 else '-'} {format_duration(abs(ms))}"


def _ranking(node: rel.Rank | rel.WindowRank | rel.Deduplicate) -> Details:
    schema = node.input.schema
    match node:
        case rel.Deduplicate():
            return {
                "keys": _names(schema, node.keys),
                "keep": f"{node.keep.value} by {schema.names[node.time]} of {node.domain.value} time",
            }
        case _:
            details: Details = {"partition": _names(schema, node.partition)}
            if isinstance(node, rel.WindowRank):
                details["window"] = _names(schema, node.window)
            details["order"] = order_text(schema, node.order)
            details["rank"] = f"{node.first} <= {node.function.value} <= {node.last}"
            return details


def _match(node: MatchRecognize) -> Details:
    schema = node.input.schema
    after = node.after.value + (f" {node.skip_to}" if node.skip_to else "")
    details: Details = {
        "partition": _names(schema, node.partition),
        "order": order_text(schema, node.order),
        "pattern": " ".join(map(_variable, node.pattern)),
        "define": [f"{name} AS {condition}" for name, condition in node.defines],
        "measures": [
            f"{m} AS {n}" for m, n in zip(node.measures, node.schema.names[len(node.partition) :], strict=True)
        ],
    }
    if node.after is not AfterMatch.SKIP_PAST_LAST_ROW:
        details["after_match"] = after
    if node.within_ms is not None:
        details["within"] = format_duration(node.within_ms)
    return details


def _variable(variable: PatternVariable) -> str:
    bounds = (variable.least, variable.most)
    most = "" if variable.most is None else variable.most
    quantifier = _QUANTIFIERS.get(bounds, f"{{{variable.least},{most}}}")
    return variable.name + quantifier + ("" if variable.greedy or bounds == (1, 1) else "?")


def order_text(schema: Schema, order: Sequence[SortKey]) -> list[str]:
    """Sort keys as SQL says them; NULLS only where they are not where SQL has them anyhow."""
    texts = []
    for key in order:
        usual = NullOrder.LAST if key.descending else NullOrder.FIRST
        nulls = "" if key.nulls is usual else f" NULLS {key.nulls.name}"
        texts.append(schema.names[key.column] + (" DESC" if key.descending else "") + nulls)
    return texts


def frame_text(frame: rel.Frame) -> str:
    """A frame as SQL says it.

    >>> frame_text(rel.Frame(FrameUnit.RANGE, 30_000))
    'RANGE BETWEEN 30s PRECEDING AND CURRENT ROW'
    """
    start = _bound_text(frame, frame.preceding, "PRECEDING", "FOLLOWING")
    return f"{frame.unit.name} BETWEEN {start} AND {_bound_text(frame, frame.following, 'FOLLOWING', 'PRECEDING')}"


def _bound_text(frame: rel.Frame, amount: int | Decimal | None, side: str, other: str) -> str:
    if amount is None:
        return f"UNBOUNDED {side}"
    if amount == 0 and (frame.unit is FrameUnit.ROWS or side == "FOLLOWING"):
        return "CURRENT ROW"
    far = abs(amount)
    text = format_duration(far) if frame.unit is FrameUnit.RANGE and isinstance(far, int) else str(far)
    return f"{text} {side if amount >= 0 else other}"


def _names(schema: Schema, positions: Sequence[int]) -> list[str]:
    return [schema.names[p] for p in positions]


def _calls(calls: Sequence[AggregateCall]) -> list[str]:
    return [f"{c} AS {c.name}" for c in calls]
