"""ON CONFLICT: one row a primary key, of rows that a query does not keep apart by it."""

from __future__ import annotations

from flowrun.core.schema import Field, Schema
from flowrun.core.types import row
from flowrun.frontend.sql.places import error_at
from flowrun.frontend.sql.script.statements import ConflictAction, ConflictSyntax
from flowrun.plan.expressions import AggregateCall, Call, ColumnRef, Expression, FieldAccess
from flowrun.plan.nodes import Calc, NodeHints, PlanNode
from flowrun.plan.relational import GroupAggregate

_KEEPS = {ConflictAction.NOTHING: "FIRST_VALUE", ConflictAction.DEDUPLICATE: "LAST_VALUE"}


def without_conflicts(
    node: PlanNode, conflict: ConflictSyntax, primary_key: tuple[str, ...], table: str, hints: NodeHints
) -> PlanNode:
    """The rows with one a primary key: the first that came, or the last that was not taken back.

    It is the FIRST_VALUE or LAST_VALUE of whole rows, by the key: what was taken back gives way to what came before it.

    Args:
        node: columns are those of the table.
        conflict: what the statement says.
        primary_key: of the table.
        table: its name.
        hints: of the aggregate.

    Raises:
        ExpressionError: the table has no primary key.
    """
    if not primary_key:
        hint = "declare PRIMARY KEY (…) NOT ENFORCED on the table, or leave ON CONFLICT out"
        raise error_at(f"ON CONFLICT needs a PRIMARY KEY, which '{table}' does not have", conflict.span, hint)
    fields = node.schema.fields
    keys = [node.schema.index(n) for n in primary_key]
    others = [i for i in range(len(fields)) if i not in keys]
    columns: list[Expression] = [ColumnRef(fields[i].type, i, fields[i].name) for i in keys]
    key_fields = [fields[i] for i in keys]
    calls: tuple[AggregateCall, ...] = ()
    if others:
        type = row(*((fields[i].name, fields[i].type) for i in others))
        columns.append(Call(type, "ROW", tuple(ColumnRef(fields[i].type, i, fields[i].name) for i in others)))
        name = "$row"
        calls = (AggregateCall(_KEEPS[conflict.action], (ColumnRef(type, len(keys), name),), type, name),)
        key_fields.append(Field(name, type))
    schema = Schema(tuple(key_fields))
    part = NodeHints(name=hints.name, location=hints.location)
    packed = Calc(schema, part, node, tuple(columns))
    kept = GroupAggregate(schema, hints, packed, tuple(range(len(keys))), calls)
    values: list[Expression] = []
    for i, field in enumerate(fields):
        if i in keys:
            values.append(ColumnRef(field.type, keys.index(i), field.name))
        else:
            values.append(FieldAccess(field.type, ColumnRef(schema.types[-1], len(keys), "$row"), field.name))
    return Calc(node.schema, part, kept, tuple(values))
