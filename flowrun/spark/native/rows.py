# ruff: noqa: ARG001 - all translations have one signature
"""Nodes that process each row by itself: constant rows, filters, projections, branches, event times, and rows that become several."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import UnsupportedPlanError
from flowrun.functions.spark_text import quote_text, spark_type
from flowrun.plan.expressions import Expression
from flowrun.plan.nodes import Calc, PlanNode, Split, Union
from flowrun.plan.relational import AssignTime, Expand, Unnest, Values
from flowrun.spark.context import Context
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, NotNative, SparkFrame, quoted
from flowrun.spark.times import millis_of
from flowrun.spark.translated import Inputs, Translated

_SET, _PLACE, _ELEMENT, _KEY, _VALUE = (
    quoted(n) for n in ("flowrun$set", "flowrun$place", "flowrun$element", "flowrun$key", "flowrun$value")
)


def no_rows(schema: Schema, event_time: bool, context: Context) -> SparkFrame:
    """A frame without rows. It has `ARRIVAL`, so that a union with it keeps that of the other frames."""
    items = [f"CAST(NULL AS {spark_type(f.type)}) AS {quoted(f.name)}" for f in schema]
    hidden = [EVENT_TIME, ARRIVAL] if event_time else [ARRIVAL]
    items += [f"CAST(NULL AS BIGINT) AS {quoted(name)}" for name in hidden]
    data = context.session.range(1).selectExpr(*items).where("false")
    return SparkFrame(data, schema, event_time, arrival=True)


def translate_values(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """Constant rows; they arrive in the order in which they are written."""
    assert isinstance(node, Values)
    if not node.rows:
        return no_rows(node.schema, False, context)
    rows = (
        ", ".join(_field(spark_text(e, ()), f.type, f.name) for e, f in zip(row, node.schema, strict=True))
        for row in node.rows
    )
    structs = [f"named_struct({row}, {quote_text(ARRIVAL)}, {i}L)" for i, row in enumerate(rows)]
    data = context.session.range(1).selectExpr(f"inline(array({', '.join(structs)}))")
    return SparkFrame(data, node.schema, arrival=True)


def _field(text: str, type: DataType, name: str) -> str:
    return f"{quote_text(name)}, CAST({text} AS {spark_type(type)})"


def translate_calc(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """A filter, then a projection."""
    assert isinstance(node, Calc)
    frame = inputs.only
    columns = frame.columns
    if node.condition is not None:
        frame = frame.where(spark_text(node.condition, columns))
    return frame.project([spark_text(p, columns) for p in node.projections], node.schema)


def translate_union(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """All rows of all members; hidden columns that only some of them have are dropped."""
    assert isinstance(node, Union)
    arrival = all(f.arrival for f in inputs.frames)
    kinds = {f.arrival_array for f in inputs.frames if arrival}
    members = []
    for frame in inputs.frames:
        items = [f"{c} AS {quoted(n)}" for c, n in zip(frame.columns, node.schema.names, strict=True)]
        items += [quoted(EVENT_TIME)] if node.event_time else []
        if arrival:
            items.append(quoted(ARRIVAL) if len(kinds) == 1 else f"{frame.arrival_array} AS {quoted(ARRIVAL)}")
        members.append(frame.data.selectExpr(*items))
    data = reduce(lambda rows, more: rows.union(more), members)
    return SparkFrame(data, node.schema, node.event_time, arrival)


def translate_split(node: PlanNode, inputs: Inputs, context: Context) -> Translated:
    """The rows of each branch as side outputs; those of none as the main output."""
    assert isinstance(node, Split)
    frame = inputs.only
    conditions = {tag: spark_text(condition, frame.columns) for tag, condition in node.branches}
    rest = " AND ".join(f"NOT coalesce({c}, false)" for c in conditions.values())
    return Translated(
        frame.where(rest) if rest else frame, {tag: frame.where(text) for tag, text in conditions.items()}
    )


def translate_assign_time(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The rows with a column as their event time."""
    assert isinstance(node, AssignTime)
    frame = inputs.only
    return frame.with_time(time_attribute(node, frame, node.column))


def time_attribute(node: PlanNode, frame: SparkFrame, column: int) -> str:
    """Spark SQL of a time attribute as a BIGINT in ms. NULL fails the run, as it fails the stream."""
    name = frame.schema.names[column]
    message = (
        f"'{node.hints.name or type(node).__name__}': the time attribute '{name}' must not be NULL; "
        f"drop such rows before: WHERE {name} IS NOT NULL"
    )
    millis = millis_of(frame.columns[column], frame.schema.types[column])
    return f"coalesce({millis}, raise_error({quote_text(message)}))"


def check_zone(zone: str) -> None:
    """Check that windows are in UTC.

    Raises:
        NotNative: they are in another time zone, for which Java may have other rules.
    """
    if zone != UTC_ZONE:
        raise NotNative("the windows go by the clocks of a time zone")


def check_event_time(node: PlanNode, domain: TimeDomain, does: str, instead: str) -> None:
    """Refuse a node that uses processing time, which a batch does not have.

    Args:
        node: the node that is translated.
        domain: the kind of time that it uses.
        does: what the node does by time, a verb with its object.
        instead: what the user can do with event time.

    Raises:
        UnsupportedPlanError: the node uses processing time.
    """
    if domain is TimeDomain.PROCESSING:
        place = f"{node.hints.location}: " if node.hints.location is not None else ""
        raise UnsupportedPlanError(
            f"{place}'{node.hints.name or type(node).__name__}' {does} by processing time, which a batch does not have",
            hint=f"{instead}, or run it with --mode streaming",
        )


def translate_expand(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """Every row once for each projection. Columns that are the same in all projections are computed once for each row."""
    assert isinstance(node, Expand)
    frame = inputs.only
    sets = ", ".join(map(str, range(len(node.projections))))
    repeated = replace(frame, data=frame.data.selectExpr("*", f"explode(array({sets})) AS {_SET}"))
    return repeated.project([_chosen(c, frame.columns) for c in zip(*node.projections, strict=True)], node.schema)


def _chosen(expressions: tuple[Expression, ...], columns: tuple[str, ...]) -> str:
    """The one of the expressions that belongs to the projection of the row."""
    texts = [spark_text(e, columns) for e in expressions]
    if len(set(texts)) == 1:
        return texts[0]
    branches: dict[str, list[str]] = {}
    for number, text in enumerate(texts):
        branches.setdefault(text, []).append(str(number))
    whens = " ".join(f"WHEN {_SET} IN ({', '.join(numbers)}) THEN {text}" for text, numbers in branches.items())
    return f"CASE {whens} END"


def translate_unnest(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """Every row once for each element of its collection; elements arrive one after the other."""
    assert isinstance(node, Unnest)
    frame = inputs.only
    ordered = node.ordinality or frame.arrival
    collection, elements = _collection(node, frame.columns[node.collection])
    generator = f"{'pos' if ordered else ''}explode{'_outer' if node.outer else ''}"
    names = ", ".join(([_PLACE] if ordered else []) + elements)
    data = frame.data.selectExpr("*", f"{generator}({collection}) AS ({names})")
    place = f"{_ELEMENT}.place" if _is_of_rows(node) else _PLACE  # rows that are NULL are left out, and counted
    texts = [*frame.columns, *_element_columns(node, elements), *([f"{place} + 1"] if node.ordinality else [])]
    if not node.keeps_collection:
        texts[node.collection] = f"CAST(NULL AS {spark_type(node.schema.types[node.collection])})"
    items = [f"{text} AS {quoted(name)}" for text, name in zip(texts, node.schema.names, strict=True)]
    items += [quoted(EVENT_TIME)] if frame.event_time else []
    if frame.arrival:
        items.append(f"concat({frame.arrival_array}, array(coalesce({_PLACE}, 0L))) AS {quoted(ARRIVAL)}")
    return replace(frame, data=data.selectExpr(*items), schema=node.schema)


def _collection(node: Unnest, text: str) -> tuple[str, list[str]]:
    """(the collection that is exploded, the columns that this gives). A MAP that gives one column is a MULTISET: element → multiplicity."""
    type = node.input.schema.types[node.collection]
    if type.root is not TypeRoot.MAP:
        if not _is_of_rows(node):
            return text, [_ELEMENT]
        if not node.ordinality:
            return f"filter({text}, e -> e IS NOT NULL)", [_ELEMENT]
        placed = f"transform({text}, (e, i) -> named_struct('row', e, 'place', i))"
        return f"filter({placed}, e -> e.row IS NOT NULL)", [_ELEMENT]
    if _added(node) == type.children:
        return text, [_KEY, _VALUE]
    repeated = "e -> array_repeat(e.key, greatest(coalesce(CAST(e.value AS INT), 0), 0))"
    return f"flatten(transform(map_entries({text}), {repeated}))", [_ELEMENT]


def _element_columns(node: Unnest, elements: list[str]) -> list[str]:
    """The columns of an element: the fields of a ROW."""
    type = node.input.schema.types[node.collection].children[0]
    if elements == [_ELEMENT] and type.root is TypeRoot.ROW:
        row = f"{_ELEMENT}.row" if node.ordinality and _is_of_rows(node) else _ELEMENT
        return [f"{row}.{quoted(name)}" for name in type.names]
    return elements


def _is_of_rows(node: Unnest) -> bool:
    """Whether the collection is an array of rows, of which those that are NULL are no elements."""
    type = node.input.schema.types[node.collection]
    return type.root is not TypeRoot.MAP and type.children[0].root is TypeRoot.ROW


def _added(node: Unnest) -> tuple[DataType, ...]:
    """The types of the columns of an element."""
    last = len(node.schema) - node.ordinality
    return node.schema.types[len(node.input.schema) : last]
