# ruff: noqa: ARG001 - all translations have one signature
"""TO_CHANGELOG, FROM_CHANGELOG and upserts in a batch, which knows final tables and not their changes.

Of upserts, and of changes that may come twice, the last change of each key decides whether it has a row.
"""

from __future__ import annotations

from dataclasses import replace

from flowrun.api.changelog import ChangelogMode
from flowrun.core.elements import RowKind
from flowrun.errors import InternalError, UnsupportedPlanError
from flowrun.functions.spark_text import quote_text
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, Sink, TableReference
from flowrun.spark.context import Context
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import ARRIVAL, KIND, SparkFrame, named, quoted
from flowrun.spark.input.scan import final_table, read_changes
from flowrun.spark.native.ranking import window_text
from flowrun.spark.translated import Inputs, leaves_rows_out


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
    """The final table of the changes. Upserts do not come here: `translate_normalize` reads them as changes."""
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


_RANK = quoted("flowrun$rank")


def translate_normalize(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The row of each key whose last change did not delete it."""
    assert isinstance(node, ChangelogNormalize)
    frame = changes_of(node.input, inputs, context)
    window = window_text([frame.columns[k] for k in node.keys], [f"{quoted(ARRIVAL)} DESC"])
    told = frame.data.where(f"{quoted(KIND)} <> {int(RowKind.UPDATE_BEFORE)}")
    numbered = told.selectExpr("*", f"row_number() OVER ({window}) AS {_RANK}")
    last = numbered.where(f"{_RANK} = 1 AND {quoted(KIND)} <> {int(RowKind.DELETE)}")
    kept = replace(frame, arrival=context.needs_arrival(node))
    return replace(kept, data=last.selectExpr(*kept.columns, *kept.hidden), schema=node.schema)


def changes_of(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The changes that a normalisation reads, in the order in which they come: a frame with `ARRIVAL` and `KIND`.

    It raises the errors of `read_changes`.
    """
    match node:
        case Scan():
            reason = leaves_rows_out(node, context)
            if reason is None:
                return read_changes(node, context)
            from flowrun.spark.hosted.node import host_changes  # imported here: most pipelines host nothing

            return host_changes(node, context)
        case FromChangelog():
            return changes_said(node, inputs.of(node.input).main)
        case Calc():
            return _calculated(node, changes_of(node.input, inputs, context))
    raise InternalError(f"a normalisation reads the changes of {type(node).__name__}, which a batch does not have")


def _calculated(node: Calc, frame: SparkFrame) -> SparkFrame:
    data = frame.data if node.condition is None else frame.data.where(spark_text(node.condition, frame.columns))
    texts = (spark_text(p, frame.columns) for p in node.projections)
    items = [*named(texts, node.schema.names), *frame.hidden, quoted(KIND)]
    return replace(frame, data=data.selectExpr(*items), schema=node.schema)
