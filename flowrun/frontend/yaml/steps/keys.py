"""`key_by`: the rows of a step with a column for each of its keys."""

from __future__ import annotations

from flowrun.core.schema import Field, Schema
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.queries.entries import Entries, EntryQuery, EntryReader, Told, Wording
from flowrun.frontend.yaml.queries.queries import StepQuery, step_hints
from flowrun.frontend.yaml.queries.step_queries import listed
from flowrun.frontend.yaml.steps.stages import Stages
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.nodes import Calc, PlanNode

_WORDING = Wording(
    twice=("the key '{name}' is given twice", None),
    several=("a key is one column", "name the columns one by one"),
)


def keyed(
    section: Section, node: PlanNode, stages: Stages, entries: EntryReader
) -> tuple[PlanNode, tuple[int, ...]] | None:
    """The rows with a column for every key of `key_by`, and the keys' positions; None if that is wrong, which is reported.

    Computed keys are appended to the columns.

    Args:
        section: the step.
        node: its rows.
        stages: of the step.
        entries: binds the keys.
    """
    if section.broken("key_by"):
        return None
    keys = section.scalars("key_by")
    if not keys:
        return node, ()
    schema = node.schema

    def wrong(name: str, column: Expression) -> Told | None:
        if _is_own(name, column, schema) or name not in schema:
            return None
        return f"the key '{name}' has the name of another column", "choose another: expression AS name"

    at, hints = section.value_at("key_by"), stages.hints("keys")
    sql = listed(keys, stages.input, at)
    query = StepQuery(
        sql, {stages.input: node}, stages.name, step_hints(hints, ("select",)), row_by_row=True, input=stages.input
    )
    found = entries.read(EntryQuery(lambda some, _: listed(some, stages.input, at), keys, query, _WORDING, wrong=wrong))
    return None if found is None else _with_columns(node, found, stages)


def _with_columns(node: PlanNode, found: Entries, stages: Stages) -> tuple[PlanNode, tuple[int, ...]]:
    schema = node.schema
    positions: list[int] = []
    appended: list[tuple[Field, Expression]] = []
    for name, column in zip(found.names, found.columns, strict=True):
        if isinstance(column, ColumnRef) and _is_own(name, column, schema):
            positions.append(column.index)
            continue
        positions.append(len(schema) + len(appended))
        nullable = schema.fields[column.index].nullable if isinstance(column, ColumnRef) else True
        appended.append((Field(name, column.type, nullable), column))
    if not appended:
        return node, tuple(positions)
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))
    assert isinstance(found.node, Calc)
    rows = Calc(
        schema=Schema((*schema.fields, *(f for f, _ in appended))),
        hints=stages.hints("keys"),
        input=found.node.input,  # the step's rows; with what subqueries give behind their columns
        projections=(*columns, *(e for _, e in appended)),
    )
    return rows, tuple(positions)


def _is_own(name: str, column: Expression, schema: Schema) -> bool:
    """Whether the key is a column of the rows under its own name."""
    return isinstance(column, ColumnRef) and column.index < len(schema) and schema.names[column.index] == name
