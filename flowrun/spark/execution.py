"""Runs a translated plan: stages every sink, then makes all outputs appear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.errors import JobFailedError
from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, SideOutput, Sink, Split, Union, walk_plan
from flowrun.plan.relational import AssignTime, Expand, Unnest, Values, WindowTableFunction
from flowrun.spark.arrival import arrival_needs
from flowrun.spark.context import ALL_TIME, Context
from flowrun.spark.failures import is_of_spark, job_failure
from flowrun.spark.frame import SparkFrame
from flowrun.spark.hosted.tallies import LeftOut, Tallies
from flowrun.spark.input.exactness import ReadAgainError, optimistically
from flowrun.spark.interruption import RUNS
from flowrun.spark.output.staging import OutputJob, StagedOutput, commit_all, stage
from flowrun.spark.ranges import READ_ALL, Reading
from flowrun.spark.times import within
from flowrun.spark.translation import SparkPlan, translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Staging = Callable[[Sink, SparkFrame, OutputJob], StagedOutput]
Watcher = Callable[[str], None]
"""Is called with what is being done now, such as `sink 'out'`."""


@record
class BatchResult:
    """How many rows a run wrote to each sink, in the plan's order, and what each operator left out."""

    rows: Mapping[str, int]
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)


def plan_on_spark(
    plan: Plan,
    session: SparkSession,
    now_ms: int,
    reading: Reading = READ_ALL,
    *,
    exact: bool = False,
    tallies: Tallies | None = None,
) -> SparkPlan:
    """The DataFrames of a plan (see `translate`); `exact` says that flowrun's readers read files (`flowrun.spark.input.exactness`)."""
    context = Context(
        session, plan.settings, now_ms, arrival_needs(plan), reading.bounds, reading.stops, exact, tallies=tallies
    )
    return translate(plan, context)


def execute(
    plan: Plan,
    session: SparkSession,
    job: OutputJob,
    now_ms: int,
    *,
    readings: Sequence[Reading] = (READ_ALL,),
    watcher: Watcher | None = None,
    staging: Staging = stage,
) -> BatchResult:
    """Run an optimised plan to its end. Either all of its outputs become visible, or none.

    Sinks run one after the other, so that each has all cores, and reads the rows that an earlier one let Spark keep.

    Args:
        plan: the optimised plan.
        session: a session with flowrun's semantics.
        job: names the output files, and so the files of earlier runs that are replaced.
        now_ms: processing time.
        readings: which event times are read and written. If there are several, each is computed by itself, and a sink gets the rows of all.
        watcher: is told what is being done.
        staging: writes the rows of a sink.

    Raises:
        JobFailedError: a stage failed; no output of this run is visible.
    """

    def run(exact: bool) -> BatchResult:
        tallies = (
            Tallies(session) if len(readings) == 1 else None
        )  # several ranges may read the same rows, which would be counted more than once
        with _explained(f"pipeline '{plan.name}'"):
            translated = [
                plan_on_spark(plan, session, now_ms, reading, exact=exact, tallies=tallies) for reading in readings
            ]
        with _kept_rows(translated) as release:
            outputs = _outputs(translated, readings, release)
            try:
                written = write(outputs, job, watcher=watcher, staging=staging)
                return written if tallies is None else replace(written, left_out=tallies.total())
            except JobFailedError as error:
                if any(each.optimistic for each in translated):
                    raise ReadAgainError() from error
                raise

    return optimistically(run)


def write(
    outputs: Iterable[tuple[Sink, SparkFrame]],
    job: OutputJob,
    *,
    watcher: Watcher | None = None,
    staging: Staging = stage,
    conclude: Callable[[], None] | None = None,
) -> BatchResult:
    """Compute and write the rows of sinks. Either all outputs become visible, or none.

    Args:
        outputs: each sink with its rows.
        job: names the output files, and so the files of earlier runs that are replaced.
        watcher: is told what is being done.
        staging: writes the rows of a sink.
        conclude: is called when all outputs are visible.

    Raises:
        JobFailedError: a stage failed; no output of this run is visible.
    """
    watcher = watcher or _nobody
    staged: list[StagedOutput] = []
    try:
        for sink, frame in outputs:
            place = f"sink '{sink.table.name}'"
            watcher(place)
            with _explained(place):
                staged.append(staging(sink, frame, job))
    except BaseException:
        for output in staged:
            output.abort()
        raise
    watcher("committing")
    with _explained("commit"), RUNS.appearing():
        commit_all(staged)
        if conclude is not None:
            conclude()
    return BatchResult({s.name: s.rows for s in staged})


def _outputs(
    translated: Sequence[SparkPlan], readings: Sequence[Reading], release: Callable[[int], None]
) -> Iterator[tuple[Sink, SparkFrame]]:
    for position, sink in enumerate(translated[0].plan.sinks):
        yield sink, _rows_of(sink, translated, readings)
        release(position)


def _nobody(place: str) -> None:
    """A watcher that does nothing."""


@contextmanager
def _explained(place: str) -> Iterator[None]:
    """A context that turns exceptions of Spark into errors of flowrun, which say the place."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise job_failure(error, place) from error


@contextmanager
def _kept_rows(translated: Sequence[SparkPlan]) -> Iterator[Callable[[int], None]]:
    """A context in which Spark keeps rows that are read several times.

    Gives a function to call after each sink with its position, which releases the rows that no later sink reads.
    """
    held = [kept for each in translated for kept in _keep(each)]

    def release(position: int) -> None:
        for kept in [k for k in held if k[0] <= position]:
            held.remove(kept)
            kept[1].unpersist()

    try:
        yield release
    finally:
        release(len(translated[0].plan.sinks))
        for rows in (r for each in translated for r in each.kept):
            rows.unpersist()


def _keep(translated: SparkPlan) -> list[tuple[int, DataFrame]]:
    """Let Spark keep rows that are read several times; gives (the position of the last sink that reads them, the rows)."""
    kept = kept_nodes(translated.plan, lambda node: translated.results[id(node)].hosted is not None)
    return [(last, translated.results[number].main.data.persist()) for number, last in kept.items()]


def _rows_of(sink: Sink, translated: Sequence[SparkPlan], readings: Sequence[Reading]) -> SparkFrame:
    """The rows of a sink: those of all ranges if they are final, else the state of its table at the end of the last range."""
    frames = [
        within(plan.results[id(sink)].main, reading.written.get(id(sink), ALL_TIME))
        for plan, reading in zip(translated, readings, strict=True)
        if id(sink) in reading.written or reading is readings[-1]
    ]
    rows = frames[0]
    for frame in frames[1:]:
        rows = replace(rows, data=rows.data.unionByName(frame.data))
    return rows


_CHEAP = (Calc, Union, Split, SideOutput, AssignTime, Expand, Unnest, Values, WindowTableFunction, Sink)
"""Nodes that cost less to compute again than to keep. Files are read again, too: each reader wants other columns."""
FILES = "filesystem"


def kept_nodes(plan: Plan, is_hosted: Callable[[PlanNode], bool]) -> Mapping[int, int]:
    """`id` of each node whose rows are computed once and kept → position of the last sink that reads them.

    Rows are kept if several nodes read them and they are expensive: they need a shuffle, Python, or a source that is no file, which might
    give other rows if it is read again.

    Args:
        plan: the optimised plan.
        is_hosted: whether a node runs in Python workers.
    """
    readers = Counter(id(i) for node in walk_plan(plan) for i in node.inputs)
    costly: dict[int, bool] = {}
    kept: set[int] = set()
    for node in walk_plan(plan):
        own = is_hosted(node) or not (isinstance(node, _CHEAP) or _is_file(node))
        costly[id(node)] = own or any(costly[id(i)] and id(i) not in kept for i in node.inputs)
        if costly[id(node)] and readers[id(node)] > 1:
            kept.add(id(node))
    return _last_readers(plan, kept)


def _is_file(node: PlanNode) -> bool:
    return isinstance(node, Scan) and node.table.connector == FILES


def _last_readers(plan: Plan, kept: set[int]) -> Mapping[int, int]:
    last: dict[int, int] = {}
    for position, sink in enumerate(plan.sinks):
        stack: list[PlanNode] = [sink]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if id(node) in kept:
                last[id(node)] = position
            stack.extend(node.inputs)
    return last
