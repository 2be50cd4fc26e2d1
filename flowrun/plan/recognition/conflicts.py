"""ON CONFLICT in the form that keeps least: nothing where no rows can be in conflict, the first row of each key where rows only come."""

from __future__ import annotations

from dataclasses import replace

from flowrun.plan.conflicts import OnConflict, ResolveConflicts, first_row_of_each_key
from flowrun.plan.nodes import PlanNode
from flowrun.plan.recognition.context import Context, RecognitionError
from flowrun.plan.recognition.windows import recognise_window_aggregate
from flowrun.plan.relational import GroupAggregate
from flowrun.plan.unique_keys import unique_keys


def recognise_conflicts(node: ResolveConflicts, context: Context) -> PlanNode:
    """What resolves the conflicts between the input's rows.

    DO NOTHING over rows that are only inserted, and over the final rows of a batch, needs no watermark: the first row of each key stays.
    Where operators see to it that there is one row a key, nothing is needed; a PRIMARY KEY that a source declares proves nothing.

    Raises:
        RecognitionError: rows are to be compared when the watermark advances, and a source has neither watermarks nor an end.
    """
    if node.action is OnConflict.NOTHING and (context.batch or context.appends(node.input)):
        chosen = first_row_of_each_key(node.input, node.keys, node.hints)
        group = chosen.input
        assert isinstance(group, GroupAggregate)
        return replace(chosen, input=recognise_window_aggregate(group, context) or group)
    if any(key <= set(node.keys) for key in unique_keys(node.input, declared=False, widened=True)):
        return node.input
    endless = None if context.batch else context.endless_without_watermark(node.input)
    if endless is not None:
        where = f" ({endless.hints.location})" if endless.hints.location is not None else ""
        name = endless.table.name
        raise RecognitionError(
            node,
            f"ON CONFLICT DO {node.action.value} of '{node.table}' compares rows when the watermark advances, but source '{name}'{where} "
            "has neither a watermark nor an end",
            f"declare WATERMARK FOR … on '{name}', or let it end; ON CONFLICT DO DEDUPLICATE needs no watermark",
        )
    return node
