"""ON CONFLICT: one row a primary key, of rows that a query does not keep apart by it."""

from __future__ import annotations

from flowrun.frontend.sql.script.statements import ConflictAction, ConflictSyntax
from flowrun.frontend.sql.spans import error_at
from flowrun.plan.conflicts import OnConflict, ResolveConflicts, last_row_of_each_key
from flowrun.plan.nodes import NodeHints, PlanNode


def without_conflicts(
    node: PlanNode, conflict: ConflictSyntax, primary_key: tuple[str, ...], table: str, hints: NodeHints
) -> PlanNode:
    """The rows with one a primary key.

    DO DEDUPLICATE is the LAST_VALUE of whole rows, by the key: what was taken back gives way to what came before it. The others compare
    rows when the watermark advances.

    Args:
        node: columns are those of the table.
        conflict: what the statement says.
        primary_key: of the table.
        table: its name.
        hints: of what remembers the rows.

    Raises:
        ExpressionError: the table has no primary key.
    """
    if not primary_key:
        hint = "declare PRIMARY KEY (…) NOT ENFORCED on the table, or leave ON CONFLICT out"
        raise error_at(f"ON CONFLICT needs a PRIMARY KEY, which '{table}' does not have", conflict.span, hint)
    keys = tuple(node.schema.index(n) for n in primary_key)
    if conflict.action is ConflictAction.DEDUPLICATE:
        return last_row_of_each_key(node, keys, hints)
    return ResolveConflicts(node.schema, hints, node, keys, OnConflict[conflict.action.name], table)
