# ruff: noqa: ARG001 - all translations have one signature
"""TO_CHANGELOG and FROM_CHANGELOG in a batch, which knows final tables and not their changes."""

from __future__ import annotations

from dataclasses import replace

from flowrun.api.changelog import ChangelogMode
from flowrun.core.elements import RowKind
from flowrun.errors import UnsupportedPlanError
from flowrun.functions.spark_text import quote_text
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.changelog_nodes import FromChangelog, ToChangelog
from flowrun.plan.nodes import Plan, PlanNode, Sink, TableReference
from flowrun.spark.context import Context
from flowrun.spark.frame import ARRIVAL, KIND, SparkFrame, quoted
from flowrun.spark.input.changes import final_table
from flowrun.spark.translated import Inputs


def translate_to_changelog(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The rows of an append-only table, each as an insert.

    Raises:
        UnsupportedPlanError: the rows are updated: a batch does not know their changes.
    """
    assert isinstance(node, ToChangelog)
    sink = Sink(node.input.schema, node.hints, node.input, TableReference("changes", "blackhole", {}))
    if changelog_modes(Plan("changes", (sink,)))[id(node.input)] is not ChangelogMode.APPEND:
        place = f"{node.hints.location}: " if node.hints.location is not None else ""
        raise UnsupportedPlanError(
            f"{place}TO_CHANGELOG shows the changes of a table, and a batch knows only what they come to",
            hint="run it with --mode streaming, or read the table itself",
        )
    code = next((text for text, kind in node.codes if kind == RowKind.INSERT), None)
    frame = inputs.only
    if code is None:
        frame = frame.where("false")
    return frame.project([*frame.columns, quote_text(code or "")], node.schema)


def translate_from_changelog(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The final table of the changes. Upserts do not come here: `native.normalize` reads them as changes."""
    assert isinstance(node, FromChangelog)
    frame = inputs.only
    return final_table(changes_said(node, frame), keep_arrival=ARRIVAL in frame.data.columns)


def changes_said(node: FromChangelog, frame: SparkFrame) -> SparkFrame:
    """The rows as the changes that they describe: a frame with `KIND`, and with `ARRIVAL` if `frame` has it."""
    operation = frame.columns[node.operation]
    whens = " ".join(f"WHEN {quote_text(text)} THEN {kind}" for text, kind in node.codes)
    failure = "NULL"
    if not node.skip:
        message = f"FROM_CHANGELOG '{node.hints.name}': unknown operation "
        failure = f"raise_error(concat({quote_text(message)}, coalesce(concat('''', {operation}, ''''), 'NULL')))"
    kind = f"CAST(CASE {operation} {whens} ELSE {failure} END AS TINYINT)"
    kept = [c for i, c in enumerate(frame.columns) if i != node.operation]
    data = frame.data.selectExpr(*kept, *frame.hidden, f"{kind} AS {quoted(KIND)}")
    return replace(frame, data=data.where(f"{quoted(KIND)} IS NOT NULL"), schema=node.schema)
