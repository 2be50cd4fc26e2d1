"""Upserts, and changes that may come twice, in a batch: the last change of each key decides whether it has a row."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.elements import RowKind
from flowrun.errors import InternalError
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog
from flowrun.plan.nodes import Calc, PlanNode, Scan
from flowrun.spark.context import Context
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import ARRIVAL, KIND, SparkFrame, named, quoted
from flowrun.spark.input.scan import read_changes
from flowrun.spark.native.changelogs import changes_said
from flowrun.spark.native.ranking import window_text
from flowrun.spark.translated import Inputs, leaves_rows_out

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
