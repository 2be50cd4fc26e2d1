# ruff: noqa: ARG001 - all lowerings have one signature
"""Lowering of nodes that work on each row by itself: constant rows, event times, rows made several of."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowrun.api.operator import OperatorSpec
from flowrun.connectors.values import ValuesSource
from flowrun.core.schema import Field, Schema
from flowrun.core.types import INT, TypeRoot
from flowrun.graph.transformation import OneInputTransformation, SourceTransformation, Transformation
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import with_hints
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.rows.factories import (
    AssignTimeFactory,
    Collection,
    ExpandFactory,
    TableFunctionFactory,
    UnnestFactory,
)
from flowrun.plan.compiled import Projection
from flowrun.plan.expressions import Expression, Literal
from flowrun.plan.nodes import PlanNode, Settings
from flowrun.plan.relational import AssignTime, Expand, TableFunctionCall, Unnest, Values
from flowrun.plan.row_errors import row_errors_of

_ONE_ROW = Schema((Field("ZERO", INT),))


def lower_values(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """A source of the rows; expressions that are no literals are evaluated when the job runs."""
    assert isinstance(node, Values)
    if all(isinstance(e, Literal) for row in node.rows for e in row):
        return _source(node, node.schema, _constant_rows(node), settings)
    one = pa.RecordBatch.from_arrays([pa.array([0], pa.int32())], schema=_ONE_ROW.arrow)
    source = _source(node, _ONE_ROW, one, settings)
    return _computed_rows(node, node.rows, source)


def lower_assign_time(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """A column as event time."""
    assert isinstance(node, AssignTime)
    return _one_input(node, AssignTimeFactory(node.column, _name(node)), inputs.only)


def lower_expand(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """Several projections of every row."""
    assert isinstance(node, Expand)
    return _computed_rows(node, node.projections, inputs.only)


def lower_unnest(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """The elements of a collection. A MAP that gives one column is a MULTISET: elements with how often they occur."""
    assert isinstance(node, Unnest)
    given = node.input.schema
    added = len(node.schema) - len(given) - node.ordinality
    collection = Collection.ARRAY
    type = given.types[node.collection]
    if type.root is TypeRoot.MAP:
        pairs = node.schema.types[len(given) : len(given) + added] == type.children
        collection = Collection.MAP if pairs else Collection.MULTISET
    factory = UnnestFactory(
        node.collection, collection, node.schema, node.outer, node.ordinality, node.keeps_collection
    )
    return _one_input(node, factory, inputs.only)


def lower_table_function(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """The rows of a user's function."""
    assert isinstance(node, TableFunctionCall)
    arguments = Schema(tuple(Field(f"${i}", a.type) for i, a in enumerate(node.arguments)))
    factory = TableFunctionFactory(
        reference=node.function,
        arguments=Projection(node.arguments, arguments),
        columns=Schema(node.schema.fields[len(node.input.schema) :]),
        output_schema=node.schema,
        outer=node.outer,
        name=_name(node),
        search_path=node.search_path,
        errors=row_errors_of(node, settings),
    )
    return _one_input(node, factory, inputs.only)


def _constant_rows(node: Values) -> pa.RecordBatch:
    columns = []
    for i, type in enumerate(node.schema.types):
        values = [getattr(row[i], "value", None) for row in node.rows]
        columns.append(pa.array([pa.scalar(v, type.arrow) for v in values], type.arrow))
    return pa.RecordBatch.from_arrays(columns, schema=node.schema.arrow)


def _source(node: PlanNode, schema: Schema, rows: pa.RecordBatch, settings: Settings) -> Transformation:
    source = ValuesSource(schema, rows)
    factory = SourceOperatorFactory(source=source, batch_rows=settings.batch_rows, name=_name(node))
    transformation = SourceTransformation(name=_name(node), schema=schema, factory=factory, source=source)
    with_hints(transformation, node.hints)
    transformation.parallelism = 1
    return transformation


def _computed_rows(
    node: PlanNode, projections: Sequence[tuple[Expression, ...]], source: Transformation
) -> Transformation:
    factory = ExpandFactory(tuple(Projection(p, node.schema) for p in projections), _name(node))
    made = _one_input(node, factory, source)
    if isinstance(node, Values):  # the source below has the place of the node
        made.uid, made.parallelism = None, 1
    return made


def _one_input(node: PlanNode, factory: OperatorSpec, source: Transformation) -> Transformation:
    made = OneInputTransformation(name=_name(node), schema=node.schema, factory=factory, input=source)
    return with_hints(made, node.hints)


def _name(node: PlanNode) -> str:
    return node.hints.name or type(node).__name__
