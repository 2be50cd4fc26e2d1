"""Backfills: the rows of a range of event times, computed on Spark; perhaps with the state at its end as a savepoint."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from flowrun.api.source import Boundedness
from flowrun.core.clock import Clock, SystemClock
from flowrun.core.record import record
from flowrun.errors import Diagnostic, PipelineError
from flowrun.plan.nodes import Plan, Scan, Sink, WindowAggregate, walk_plan
from flowrun.plan.relational import WindowTableFunction
from flowrun.plan.row_errors import is_letter_sink
from flowrun.plan.windows import CumulativeWindow, SlidingWindow, TumblingWindow
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.spark import BatchListener, endless, watching
from flowrun.spark.context import TimeRange
from flowrun.spark.execution import Staging, execute, write
from flowrun.spark.failures import is_of_spark, job_failure
from flowrun.spark.input.odd_data import warn_of_odd_data
from flowrun.spark.input.scan import make_source
from flowrun.spark.output.job import name_of
from flowrun.spark.output.names import output_name
from flowrun.spark.output.staging import OutputJob, StagedOutput, stage, stage_to_go_on
from flowrun.spark.ranges import Reading, reading_for
from flowrun.spark.session import SparkOptions, spark_session
from flowrun.spark.times import within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flowrun.spark.frame import SparkFrame
    from flowrun.spark.savepoint import HandOver, SavepointWritten

STATE = "all"
"""The period of results that tell how things stand: a later backfill replaces those of one before, as `run --mode batch` does."""


@record
class Backfill:
    """What is to be recomputed.

    Attributes:
        period: event times; has an end.
        ranges: into how many parts it is split, which run beside each other.
        savepoint: folder in which the state at the end of the period is left; None: nowhere.
    """

    period: TimeRange
    ranges: int = 1
    savepoint: str | None = None


@record
class BackfillReport:
    """What became of a backfill.

    Attributes:
        name: of the pipeline.
        period: that was written.
        rows: by sink, in the pipeline's order.
        start_ms: until Spark was there.
        running_ms: from then on.
        savepoint: that was left.
    """

    name: str
    period: TimeRange
    rows: Mapping[str, int]
    start_ms: float
    running_ms: float
    savepoint: SavepointWritten | None = None


def run_backfill(
    compiled: CompiledPipeline,
    wanted: Backfill,
    options: SparkOptions,
    *,
    listener: BatchListener | None = None,
    clock: Clock | None = None,
) -> BackfillReport:
    """Recompute a range; all of its outputs appear, in place of those of an earlier backfill of the range, or none.

    Args:
        compiled: the pipeline.
        wanted: the range, and how.
        options: where to run.
        listener: told a few times a second what is being done, on a thread of its own.
        clock: processing time, which stands still for the whole run; the system's if None.

    Raises:
        PipelineError: no source has event time, or one has no end.
        SetupError: Spark cannot be started or reached.
        JobFailedError: the run failed; nothing of it is visible.
    """
    clock = SystemClock() if clock is None else clock
    plan = compiled.optimised
    readings = readings_of(plan, wanted)
    began = clock.monotonic_ns()
    with watching(listener, clock) as watch, spark_session(options, plan.name) as session:
        started = clock.monotonic_ns()
        watch.attach(session)
        warn_of_odd_data(plan)
        job = OutputJob(plan.name, period_text(wanted.period), uuid.uuid4().hex)
        staging = _staging(plan, wanted, readings[0])
        written = None
        if wanted.savepoint is None:
            result = execute(
                plan, session, job, clock.now_ms(), readings=readings, watcher=watch.now_doing, staging=staging
            )
        else:
            identities = _identities(plan, wanted, readings[0], job.run_id)
            with _handed_over(compiled, wanted, session, clock, identities, watch.now_doing) as hand_over:
                outputs = [_from_start(*output, readings[0]) for output in hand_over.outputs]
                finished: list[SavepointWritten] = []
                result = write(
                    outputs,
                    job,
                    watcher=watch.now_doing,
                    staging=staging,
                    conclude=lambda: finished.append(hand_over.finish()),
                )
                written = finished[0]
        ended = clock.monotonic_ns()
        watch.close()
    times = ((started - began) / 1e6, (ended - started) / 1e6)
    return BackfillReport(plan.name, wanted.period, result.rows, *times, written)


def readings_of(plan: Plan, wanted: Backfill) -> list[Reading]:
    """What is read and written, one a part of the range.

    Raises:
        PipelineError: no source has event time, or one has no end.
    """
    check_sources(plan, wanted.period.stop)
    readings = [reading_for(plan, part) for part in parts_of(plan, wanted.period, wanted.ranges)]
    if wanted.savepoint is None:
        _check_reach(plan, readings)
    return readings


def _check_reach(plan: Plan, readings: list[Reading]) -> None:
    """Raise PipelineError if rows behind the range are needed that only a part without end has."""
    problems = []
    for scan in walk_plan(plan):
        if not isinstance(scan, Scan):
            continue
        known = [r.bounds[id(scan)].stop for r in readings if id(scan) in r.bounds]
        stop = max((s for s in known if s is not None), default=None) if None not in known else None
        if make_source(scan, stop).boundedness is Boundedness.UNBOUNDED:
            moment = "later ones" if stop is None else f"those before {_moment_text(stop)}"
            problems.append(
                Diagnostic(
                    f"source '{scan.table.name}': rows behind the range are needed, too ({moment}), but where they are there is no end",
                    location=scan.hints.location,
                    hint="end the range earlier, or bound the last source",
                )
            )
    if problems:
        raise PipelineError(problems)


def check_sources(plan: Plan, until_ms: int | None = None) -> None:
    """Raise PipelineError unless a backfill can read the plan's sources: all have an end, and one at least has event time.

    Args:
        plan: the plan.
        until_ms: end of the range, ms: a source that is divided by time needs an end there; None: anywhere.
    """
    scans = [node for node in walk_plan(plan) if isinstance(node, Scan)]
    problems = [endless(s, plan.text) for s in scans if make_source(s, until_ms).boundedness is Boundedness.UNBOUNDED]
    if not any(s.event_time for s in scans):
        names = ", ".join(sorted({f"'{s.table.name}'" for s in scans}))
        problems.append(
            Diagnostic(
                f"a backfill is of a range of event time, which no source has (sources: {names or 'none'})",
                hint="declare it: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, or in YAML watermark: {column: ts, delay: 5s}; "
                "to recompute everything, use run --mode batch",
            )
        )
    if problems:
        raise PipelineError(problems)


def parts_of(plan: Plan, period: TimeRange, count: int) -> list[TimeRange]:
    """A range in `count` parts of about equal length, or in fewer, so that they begin where windows begin."""
    if count == 1 or period.start is None or period.stop is None:
        return [period]
    step, offset = _grid(plan)
    edges = [period.start]
    for i in range(1, count):
        even = period.start + (period.stop - period.start) * i // count
        edge = even - (even - offset) % step
        if edge > edges[-1]:
            edges.append(edge)
    return [TimeRange(a, b) for a, b in zip(edges, [*edges[1:], period.stop], strict=True)]


def _grid(plan: Plan) -> tuple[int, int]:
    """(step, offset) of the moments at which the plan's longest windows begin."""
    found = [(1, 0)]
    for node in walk_plan(plan):
        if isinstance(node, WindowAggregate | WindowTableFunction):
            match node.window:
                case TumblingWindow(size_ms=step, offset_ms=offset) | CumulativeWindow(size_ms=step, offset_ms=offset):
                    found.append((step, offset))
                case SlidingWindow(slide_ms=step, offset_ms=offset):
                    found.append((step, offset))
    return max(found)


def period_text(period: TimeRange) -> str:
    """A range as names of files hold it.

    >>> period_text(TimeRange(1704067200000, 1704070800500))
    '20240101T000000Z-20240101T010000_500Z'
    """
    start = "beginning" if period.start is None else _moment_text(period.start)
    return f"{start}-{'end' if period.stop is None else _moment_text(period.stop)}"


def _moment_text(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    try:
        text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y%m%dT%H%M%S")
    except OverflowError:  # beyond the years that have a name
        return f"{ms}ms"
    return f"{text}_{rest:03d}Z" if rest else f"{text}Z"


def output_job(plan: Plan, wanted: Backfill, sink: Sink, reading: Reading, run_id: str) -> OutputJob:
    """Under what name a sink is written: one that tells how things stand replaces what any backfill wrote. Dead letters have no event
    time, and are yet those of the range for which their rows were read.
    """
    of_range = id(sink) in reading.written or is_letter_sink(sink)
    return OutputJob(plan.name, period_text(wanted.period) if of_range else STATE, run_id)


def _staging(plan: Plan, wanted: Backfill, reading: Reading) -> Staging:
    stage_it = stage if wanted.savepoint is None else stage_to_go_on

    def staged(sink: Sink, frame: SparkFrame, job: OutputJob) -> StagedOutput:
        return stage_it(sink, frame, output_job(plan, wanted, sink, reading, job.run_id))

    return staged


def _identities(plan: Plan, wanted: Backfill, reading: Reading, run_id: str) -> dict[int, str]:
    """By `id` of each sink, as what a stream that restores from here knows what is written."""
    jobs = ((s, output_job(plan, wanted, s, reading, run_id)) for s in plan.sinks)
    return {id(sink): output_name(job, name_of(sink)).identity for sink, job in jobs}


def _from_start(sink: Sink, frame: SparkFrame, reading: Reading) -> tuple[Sink, SparkFrame]:
    """What a sink gets of the rows of a job that ran from the beginning: final rows from the range's start on."""
    period = reading.written.get(id(sink))
    return sink, frame if period is None else within(frame, TimeRange(period.start, None))


@contextmanager
def _handed_over(
    compiled: CompiledPipeline,
    wanted: Backfill,
    session: SparkSession,
    clock: Clock,
    identities: Mapping[int, str],
    doing: Callable[[str], None],
) -> Iterator[HandOver]:
    """The job run up to the end of the range; what it left is removed unless it became a savepoint."""
    from flowrun.spark.savepoint import leave_savepoint

    assert wanted.savepoint is not None
    assert wanted.period.stop is not None
    doing("computing state")
    try:
        hand_over = leave_savepoint(
            compiled, session, wanted.period.stop, wanted.savepoint, now_ms=clock.now_ms(), identities=identities
        )
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise job_failure(error, f"pipeline '{compiled.plan.name}'") from error
    try:
        yield hand_over
    except BaseException:
        hand_over.discard()
        raise
