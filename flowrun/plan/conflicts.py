"""One row a primary key of rows that a query does not keep apart by it: ON CONFLICT of INSERT INTO."""

from __future__ import annotations

from enum import Enum

from flowrun.core.schema import Field, Schema
from flowrun.core.types import row
from flowrun.plan.description import input_node, node, parameter, positions
from flowrun.plan.expressions import AggregateCall, Call, ColumnRef, Expression, FieldAccess
from flowrun.plan.nodes import Calc, NodeHints, PlanNode
from flowrun.plan.relational import GroupAggregate


class OnConflict(Enum):
    """What becomes of different rows that have one primary key when the watermark advances."""

    ERROR = "ERROR"
    NOTHING = "NOTHING"


@node(keeps_rows=True)
class ResolveConflicts(PlanNode):
    """The input's rows with one a key. After Apache Flink's `WatermarkCompactingSinkMaterializer` (FLIP-558).

    Changes are gathered and come to something only when the watermark advances: an insertion and its retraction cancel each other out.
    Equal rows are one row. Of several different ones ERROR fails the job; NOTHING keeps the one that is there, or that came first, and
    forgets the others.

    Attributes:
        keys: positions of the columns of the key.
        action: what becomes of several rows.
        table: name of the table that the rows are written to.
    """

    input: PlanNode = input_node()
    keys: tuple[int, ...] = positions("input")
    action: OnConflict = parameter()
    table: str = parameter()

    @property
    def event_time(self) -> bool:
        return False


def first_row_of_each_key(node: PlanNode, keys: tuple[int, ...], hints: NodeHints) -> Calc:
    """The row of each key that came first, of those that were not taken back, at once: the FIRST_VALUE of whole rows.

    Args:
        node: the rows.
        keys: positions of the columns of the key.
        hints: of the aggregate.
    """
    return _chosen_row(node, keys, "FIRST_VALUE", hints)


def last_row_of_each_key(node: PlanNode, keys: tuple[int, ...], hints: NodeHints) -> Calc:
    """The row of each key that came last, of those that were not taken back. Arguments as of `first_row_of_each_key`."""
    return _chosen_row(node, keys, "LAST_VALUE", hints)


def _chosen_row(node: PlanNode, keys: tuple[int, ...], function: str, hints: NodeHints) -> Calc:
    fields = node.schema.fields
    others = [i for i in range(len(fields)) if i not in keys]
    columns: list[Expression] = [ColumnRef(fields[i].type, i, fields[i].name) for i in keys]
    key_fields = [fields[i] for i in keys]
    calls: tuple[AggregateCall, ...] = ()
    if others:
        type = row(*((fields[i].name, fields[i].type) for i in others))
        columns.append(Call(type, "ROW", tuple(ColumnRef(fields[i].type, i, fields[i].name) for i in others)))
        name = "$row"
        calls = (AggregateCall(function, (ColumnRef(type, len(keys), name),), type, name),)
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
