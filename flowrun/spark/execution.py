"""Runs a translated plan: stages every sink, then makes all outputs appear."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.errors import JobFailedError
from flowrun.plan.nodes import Plan, Sink
from flowrun.spark.arrival import arrival_needs
from flowrun.spark.context import ALL_TIME, Context
from flowrun.spark.failures import is_of_spark, job_failure
from flowrun.spark.frame import SparkFrame
from flowrun.spark.hosted.tallies import LeftOut, Tallies
from flowrun.spark.input.exactness import ReadAgainError, optimistically
from flowrun.spark.interruption import RUNS
from flowrun.spark.output.staging import OutputJob, StagedOutput, commit_all, stage
from flowrun.spark.ranges import READ_ALL, Reading
from flowrun.spark.sharing import kept_nodes
from flowrun.spark.times import within
from flowrun.spark.translation import SparkPlan, translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Staging = Callable[[Sink, SparkFrame, OutputJob], StagedOutput]
Watcher = Callable[[str], None]
"""Told what is being done now, such as `sink 'out'`."""


@record
class BatchResult:
    """What a run wrote: rows by sink, in the plan's order; and what it left out, by operator."""

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
    """The DataFrames of a plan (see `translate`); `exact`: with flowrun's own readers, see `flowrun.spark.input.exactness`."""
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
    """Run an optimised plan to its end; all of its outputs appear, or none.

    Sinks run one after the other: each has all cores, and reads what an earlier one left for it.

    Args:
        plan: optimised.
        session: with flowrun's semantics.
        job: under whose name outputs are written, and replaced.
        now_ms: processing time.
        readings: which event times are read and written; of several, each is computed by itself, and each sink gets the rows of all.
        watcher: told what is being done.
        staging: how the rows of a sink are written.

    Raises:
        JobFailedError: a stage failed; nothing of this run is visible.
    """

    def run(exact: bool) -> BatchResult:
        tallies = Tallies(session) if len(readings) == 1 else None  # ranges may read the same rows
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
    """Run what gives the rows of sinks; all outputs appear, or none.

    Args:
        outputs: each sink with its rows.
        job: under whose name outputs are written, and replaced.
        watcher: told what is being done.
        staging: how the rows of a sink are written.
        conclude: called once everything is visible; what it says to others is true then, also if this process is killed.

    Raises:
        JobFailedError: as `execute`.
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
    """Nobody watches."""


@contextmanager
def _explained(place: str) -> Iterator[None]:
    """Spark's exceptions leave as flowrun's, with the place."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise job_failure(error, place) from error


@contextmanager
def _kept_rows(translated: Sequence[SparkPlan]) -> Iterator[Callable[[int], None]]:
    """Rows that several read are kept in here; gives what releases those that no sink after a position reads."""
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
    """Have Spark keep rows that several read; gives (position of the last sink that reads them, rows)."""
    kept = kept_nodes(translated.plan, lambda node: translated.results[id(node)].hosted is not None)
    return [(last, translated.results[number].main.data.persist()) for number, last in kept.items()]


def _rows_of(sink: Sink, translated: Sequence[SparkPlan], readings: Sequence[Reading]) -> SparkFrame:
    """What a sink gets: final rows of all ranges, and how things stand at the end of the last one."""
    frames = [
        within(plan.results[id(sink)].main, reading.written.get(id(sink), ALL_TIME))
        for plan, reading in zip(translated, readings, strict=True)
        if id(sink) in reading.written or reading is readings[-1]
    ]
    rows = frames[0]
    for frame in frames[1:]:
        rows = replace(rows, data=rows.data.unionByName(frame.data))
    return rows
