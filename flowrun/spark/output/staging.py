"""The two steps of every output on Spark: rows are staged where they are not visible, then all outputs of the run become visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowrun.api.changelog import ChangelogMode, ChangesTaken, changes_taken_by
from flowrun.api.sink import Sink as SinkDescription
from flowrun.connectors.filesystem.earlier_output import SinkMode
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import Diagnostic, OptionError, PipelineError
from flowrun.functions.spark_text import quoted
from flowrun.plan.changelog import sink_mode
from flowrun.plan.nodes import Plan, Sink
from flowrun.plan.tables import create_sink
from flowrun.plan.unique_keys import unique_keys
from flowrun.spark.frame import EVENT_TIME, SparkFrame
from flowrun.spark.output.constraints import enforced_column
from flowrun.spark.output.job import OutputJob, StagedOutput, place

_PLACE = "flowrun$place"
__all__ = ["OutputJob", "StagedOutput", "commit_all", "stage", "stage_to_go_on"]


def check_outputs(plan: Plan) -> None:
    """Check, before a run that is no backfill, that sinks which must start empty have no output of earlier runs.

    Raises:
        SetupError: a sink has.
    """
    for sink in plan.sinks:
        described = _sink_of(sink, updating=False)
        if isinstance(described, FileSink) and described.mode is SinkMode.ERROR:
            described.begin("")


def stage(sink: Sink, frame: SparkFrame, job: OutputJob) -> StagedOutput:
    """Write the rows of a sink where they are not visible. Spark runs during this call.

    Raises:
        PipelineError: the table's options are wrong.
        ConnectorError: the sink cannot be written.
    """
    described = _sink_of(sink, updating=False)  # it gets the rows of the final table, none of which is an update
    checked = _constrained(sink, _one_row_a_key(sink, frame))
    # These modules are imported here, when a plan needs them.
    if isinstance(described, FileSink):
        from flowrun.spark.output.files import stage_files

        return stage_files(sink, described, checked.without_time(), job)
    from flowrun.spark.output.connectors import stage_rows

    return stage_rows(sink, described, checked, job)


def stage_to_go_on(sink: Sink, frame: SparkFrame, job: OutputJob) -> StagedOutput:
    """As `stage`, for a sink that a stream will go on with: tables by key are written as the stream would, which can then replace them."""
    described = _sink_of(sink, updating=sink_mode(Plan(sink.table.name, (sink,)), sink) is not ChangelogMode.APPEND)
    if not isinstance(described, FileSink) or not described.primary_key:
        return stage(sink, frame, job)
    from flowrun.spark.output.files import stage_table

    return stage_table(sink, described, _constrained(sink, frame).without_time(), job)


def commit_all(staged: Sequence[StagedOutput]) -> None:
    """Make all outputs visible in order. Those that may fail come first: if one of them fails, none of the others is visible."""
    first = [s for s in staged if s.runs_on_commit]
    rest = [s for s in staged if not s.runs_on_commit]
    try:
        for output in first:
            output.commit()
    except BaseException:
        for output in (*first, *rest):
            output.abort()
        raise
    for output in rest:
        output.commit()


def _sink_of(sink: Sink, *, updating: bool) -> SinkDescription:
    """The connector's sink."""
    try:
        return create_sink(sink.table, sink.schema, unbounded=False, updating=updating)
    except OptionError as error:
        problem = Diagnostic(f"{place(sink)}: {error.message}", location=sink.hints.location, hint=error.hint)
        raise PipelineError([problem]) from error


def _one_row_a_key(sink: Sink, frame: SparkFrame) -> SparkFrame:
    """One row for each primary key, if the stream keeps one and the plan does not guarantee that there is only one.

    In the stream the last row of a key counts. Here it is the one with the greatest event time, if rows have any, and then the greatest
    values.
    """
    keys = [sink.schema.index(k) for k in sink.table.primary_key]
    if not keys or any(key <= set(keys) for key in unique_keys(sink.input)):
        return frame
    if sink_mode(Plan(sink.table.name, (sink,)), sink) is ChangelogMode.APPEND:
        return frame
    if changes_taken_by(_sink_of(sink, updating=True)) is not ChangesTaken.UPSERT:
        return frame
    columns = zip(frame.columns, frame.schema.types, strict=True)
    order = [*frame.hidden, *(c for c, type in columns if not _has_map(type))]
    place_in_key = (
        f"row_number() OVER (PARTITION BY {', '.join(frame.columns[k] for k in keys)} "
        f"ORDER BY {', '.join(f'{c} DESC NULLS LAST' for c in order)})"
    )
    numbered = frame.data.selectExpr("*", f"{place_in_key} AS {quoted(_PLACE)}")
    return replace(frame, data=numbered.where(f"{quoted(_PLACE)} = 1").drop(_PLACE))


def _has_map(type: DataType) -> bool:
    return type.root is TypeRoot.MAP or any(map(_has_map, type.children))


def _constrained(sink: Sink, frame: SparkFrame) -> SparkFrame:
    """The rows with the names of the sink's columns and their constraints enforced."""
    enforced = [
        enforced_column(text, field, sink.constraints, place(sink))
        for text, field in zip(frame.columns, sink.schema, strict=True)
    ]
    texts = [f"{e.text} AS {quoted(f.name)}" for e, f in zip(enforced, sink.schema, strict=True)]
    hidden = [quoted(EVENT_TIME)] if frame.event_time else []
    rows = frame.data
    for condition in (e.condition for e in enforced if e.condition is not None):
        rows = rows.where(condition)
    data = rows.selectExpr(*texts, *hidden)
    is_checked = any(e.condition is not None or e.text != c for e, c in zip(enforced, frame.columns, strict=True))
    made_by = None if is_checked or frame.pipe is None else replace(frame.pipe, rows=data)
    return replace(frame, data=data, schema=sink.schema, arrival=False, made_by=made_by)
