"""`key_by`: the rows of a step with a column for each of its keys."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.queries.entries import Entries, EntryQuery, EntryReader, Told, Wording
from flowrun.frontend.yaml.queries.queries import StepQuery, step_hints
from flowrun.frontend.yaml.queries.step_queries import listed
from flowrun.frontend.yaml.steps.stages import Stages
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.nodes import Calc, NodeHints, PlanNode

_WORDING = Wording(
    twice=("the key '{name}' is given twice", None),
    several=("a key is one column", "name the columns one by one"),
)


@record
class KeyedRows:
    """The rows of an input, and the positions of their keys; None: they have none."""

    node: PlanNode
    keys: tuple[int, ...] | None


def keyed(
    section: Section, node: PlanNode, stages: Stages, entries: EntryReader, *, of: str = "", part: str = "keys"
) -> tuple[PlanNode, tuple[int, ...]] | None:
    """The rows with a column for every key of `key_by`, and the keys' positions; None if that is wrong, which is reported.

    Computed keys are appended to the columns.

    Args:
        section: the step, or what has keys of its own in it.
        node: its rows.
        stages: of the step.
        entries: binds the keys.
        of: how keys name the rows; empty: as the step does.
        part: the part of the step that computes keys.
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

    at, hints, name = section.value_at("key_by"), stages.hints(part), of or stages.input
    sql = listed(keys, name, at)
    query = StepQuery(sql, {name: node}, stages.name, step_hints(hints, ("select",)), row_by_row=True, input=name)
    found = entries.read(EntryQuery(lambda some, _: listed(some, name, at), keys, query, _WORDING, wrong=wrong))
    return None if found is None else _with_columns(node, found, hints)


def _with_columns(node: PlanNode, found: Entries, hints: NodeHints) -> tuple[PlanNode, tuple[int, ...]]:
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
        hints=hints,
        input=found.node.input,  # the step's rows; with what subqueries give behind their columns
        projections=(*columns, *(e for _, e in appended)),
    )
    return rows, tuple(positions)


def _is_own(name: str, column: Expression, schema: Schema) -> bool:
    """Whether the key is a column of the rows under its own name."""
    return isinstance(column, ColumnRef) and column.index < len(schema) and schema.names[column.index] == name
