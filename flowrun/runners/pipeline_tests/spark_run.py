"""A test on Spark: the same rows, all at once, and the table that is left of each sink at the end.

Spark is the second opinion on what rows a pipeline gives for an input that ends. It has no order of steps, no processing time that goes by
and no late rows: a test where these matter does not run there, and says why.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.types import TypeRoot
from flowrun.errors import PipelineError, UnsupportedPlanError
from flowrun.frontend.pipeline_tests.document import End, Give, Pass, PipelineTest
from flowrun.plan.nodes import Plan, PlanNode, Scan, Sink, TableReference
from flowrun.plan.rewrites.traversal import map_plan
from flowrun.runners.pipeline_tests.binding import BoundTest
from flowrun.runners.pipeline_tests.captured import Change
from flowrun.runners.pipeline_tests.run import Outcome, Seen
from flowrun.runners.pipeline_tests.subject import Subject
from flowrun.spark.execution import execute
from flowrun.spark.frame import SparkFrame, quoted
from flowrun.spark.output.staging import OutputJob
from flowrun.spark.session import SparkOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkTests:
    """Runs tests in one session of Spark. A context manager: the session starts with it.

    Raises:
        SetupError: Spark cannot be started.
    """

    def __init__(self, options: SparkOptions | None = None) -> None:
        self._context: AbstractContextManager[SparkSession] = spark_session(options or SparkOptions(), "flowrun test")

    def __enter__(self) -> SparkTests:
        self._session = self._context.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._context.__exit__(*raised)  # type: ignore[arg-type]  # as they came

    def run(self, bound: BoundTest) -> Outcome:
        """What is left of each sink at the end, as inserts.

        Raises:
            UnsupportedPlanError: Spark cannot do what the pipeline asks for.
            JobFailedError: it failed.
        """
        subject = bound.subject
        with tempfile.TemporaryDirectory(prefix="flowrun-test-") as folder:
            files = _write_given(bound, Path(folder))
            plan = map_plan(subject.plan, lambda node: _reading(node, files))
            collected: dict[str, list[Change]] = {}
            names = {sink.channel: sink.name for sink in subject.sinks}

            def collect(sink: Sink, frame: SparkFrame, _: OutputJob) -> _Collected:
                rows = _rows(sink, frame)
                collected[names[sink.table.name]] = [Change(RowKind.INSERT, row) for row in rows]
                return _Collected(sink.table.name, len(rows))

            job = OutputJob(plan.name, "test", Path(folder).name)
            execute(_for_spark(plan), self._session, job, bound.test.surroundings.now_ms, staging=collect)
        return Outcome((Seen(None, collected, {}, {}),))


def why_not(bound: BoundTest, outcome: Outcome) -> str | None:
    """Why a test does not run on Spark; None: it does. `outcome`: of the run as it is written."""
    test, subject = bound.test, bound.subject
    endless = sorted(set(subject.tables) - subject.bounded - _ended(test, subject))
    if endless:
        return f"source '{endless[0]}' does not end"
    if test.error is not None:
        return "an error is expected"
    if test.surroundings.calls:
        return "a table stands for a function"
    if any(isinstance(action, Pass) for action in test.actions):
        return "processing time goes by"
    if any(outcome.looks[-1].late.values()):
        return "rows are late, which they never are on Spark"
    changing = sorted(name for name, kinds in subject.kinds.items() if kinds != (RowKind.INSERT,))
    return f"source '{changing[0]}' gives changes" if changing else None


def _ended(test: PipelineTest, subject: Subject) -> set[str]:
    ends = [action.source for action in test.actions if isinstance(action, End)]
    return set(subject.tables) if None in ends else {name for name in ends if name is not None}


def _write_given(bound: BoundTest, folder: Path) -> Mapping[str, Path]:
    """A file of all rows of each source."""
    batches: dict[str, list[RecordBatch]] = {name: [] for name in bound.subject.tables}
    for action in bound.test.actions:
        if isinstance(action, Give):
            batches[action.source].append(bound.batches[id(action)])
    files = {}
    for number, (name, given) in enumerate(batches.items()):
        files[name] = folder / f"{number}.parquet"
        schema = bound.subject.tables[name].schema.arrow
        pq.write_table(pa.Table.from_batches([b.columns for b in given], schema), files[name])
    return files


def _reading(node: PlanNode, files: Mapping[str, Path]) -> PlanNode:
    if not isinstance(node, Scan):
        return node
    options: dict[str, object] = {"path": str(files[node.table.name])}
    table = TableReference(
        node.table.name,
        "filesystem",
        options,
        "parquet",
        primary_key=node.table.primary_key,
        event_time=node.table.event_time,
    )
    return replace(node, table=table, filters=())


def _for_spark(plan: Plan) -> Plan:
    return replace(plan, settings=replace(plan.settings, mode="batch"))


def _rows(sink: Sink, frame: SparkFrame) -> list[tuple[object, ...]]:
    items = [
        f"{'CAST(NULL AS INT)' if type.root is TypeRoot.NULL else column} AS {quoted(f'c{i}')}"
        for i, (column, type) in enumerate(zip(frame.columns, frame.schema.types, strict=True))
    ]
    table = frame.data.selectExpr(*items, "true AS `row`").toArrow()
    columns = [
        pa.nulls(table.num_rows) if type.root is TypeRoot.NULL else table.column(i).cast(type.arrow)
        for i, type in enumerate(sink.schema.types)
    ]
    return list(zip(*(c.to_pylist() for c in columns), strict=True)) if columns else [()] * table.num_rows


@record
class _Collected:
    """The rows of one sink, which are where they belong."""

    name: str
    rows: int
    runs_on_commit = False

    def commit(self) -> None:
        """Nothing is to be made visible."""

    def abort(self) -> None:
        """Nothing is left."""


def run_on_spark(tests: SparkTests, bound: BoundTest, outcome: Outcome) -> Outcome | str:
    """What Spark gives, to be compared with the end of the run as it is written; or why the test does not run there."""
    reason = why_not(bound, outcome)
    if reason is not None:
        return reason
    try:
        return tests.run(bound)
    except UnsupportedPlanError as error:
        return error.message
    except PipelineError as error:  # what it says of a table that stands for another is of no use here
        return "; ".join(d.message for d in error.diagnostics)


def looks_at_end_only(outcome: Outcome) -> Outcome:
    """The outcome with what there was at the end alone: Spark knows no steps."""
    return replace(outcome, looks=outcome.looks[-1:])
