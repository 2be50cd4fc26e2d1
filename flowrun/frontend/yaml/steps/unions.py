"""`union`: all rows of several steps, whose columns must agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.hints import part_hints
from flowrun.functions.coercion import common_type
from flowrun.plan.expressions import Cast, ColumnRef, Expression
from flowrun.plan.nodes import Calc, NodeHints, PlanNode, Union


def union_of(
    section: Section, members: list[PlanNode], hints_of: Callable[[str], NodeHints], diagnostics: Diagnostics
) -> PlanNode | None:
    """All rows of the members, whose columns must agree; texts of different lengths take the longest."""
    scalars = section.scalars("union")
    first = members[0].schema
    types: list[DataType] = list(first.types)
    nullable = [f.nullable for f in first]
    for scalar, member in zip(scalars[1:], members[1:], strict=True):
        if not _same_columns(scalars[0], first, scalar, member.schema, types, diagnostics):
            return None
        nullable = [a or f.nullable for a, f in zip(nullable, member.schema, strict=True)]
    schema = Schema(tuple(Field(n, t, o) for n, t, o in zip(first.names, types, nullable, strict=True)))
    widened = tuple(_as_schema(m, schema, hints_of("union")) for m in members)
    return Union(schema=schema, hints=hints_of("union"), members=widened)


def _same_columns(
    first_name: YamlScalar,
    first: Schema,
    scalar: YamlScalar,
    schema: Schema,
    types: list[DataType],
    diagnostics: Diagnostics,
) -> bool:
    for position in range(max(len(first), len(schema))):
        left = first.fields[position] if position < len(first) else None
        right = schema.fields[position] if position < len(schema) else None
        same_name = left is not None and right is not None and left.name == right.name
        if same_name and left is not None and right is not None:
            common = types[position] if right.type == types[position] else None
            if right.type.is_character and types[position].is_character:
                common = common_type((types[position], right.type))
            if common is not None:
                types[position] = common
                continue
        names = (first_name.text, scalar.text)
        shown = [
            f"'{f.name} {f.type}' in {n}" if f else f"missing in {n}" for f, n in zip((left, right), names, strict=True)
        ]
        diagnostics.error(
            f"the inputs of a union have different columns: column {position + 1} is {shown[0]}, but {shown[1]}",
            scalar.location,
            hint="bring them to the same names and types, in the same order, with select",
        )
        return False
    return True


def _as_schema(node: PlanNode, schema: Schema, hints: NodeHints) -> PlanNode:
    """The node with columns cast to the types of `schema`, if any differs."""
    if node.schema.types == schema.types:
        return node
    projections: list[Expression] = []
    for position, (have, want) in enumerate(zip(node.schema, schema, strict=True)):
        column = ColumnRef(have.type, position, have.name)
        projections.append(column if have.type == want.type else Cast(want.type, column))
    return Calc(
        schema=schema,
        hints=replace(part_hints(hints, "cast"), uid=None, place=None),
        input=node,
        projections=tuple(projections),
    )
