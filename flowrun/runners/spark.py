"""The Spark runner: a pipeline in batch mode, from its plan to its outputs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING

from flowrun.api.source import Boundedness
from flowrun.core.clock import Clock, SystemClock
from flowrun.core.record import record
from flowrun.errors import Diagnostic, PipelineError
from flowrun.plan.nodes import Plan, Scan, walk_plan
from flowrun.runners.compile import CompiledPipeline
from flowrun.spark.execution import execute, plan_on_spark
from flowrun.spark.explain import explain_on_spark
from flowrun.spark.hosted.tallies import LeftOut
from flowrun.spark.input.odd_data import warn_of_odd_data
from flowrun.spark.input.scan import make_source
from flowrun.spark.interruption import run_interruptibly
from flowrun.spark.output.job import ALL, OutputJob
from flowrun.spark.output.staging import check_outputs
from flowrun.spark.progress import SparkProgress, StageProgress
from flowrun.spark.session import SparkOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BatchReport",
    "BatchStatus",
    "LeftOut",
    "SparkOptions",
    "StageProgress",
    "check_bounded",
    "explain_batch",
    "run_batch",
    "run_interruptibly",
]

STARTING = "starting Spark"
PLANNING = "planning"
_LISTEN_EVERY_S = 0.25
_BOUNDING = {
    "datagen": "give it 'number-of-rows'",
    "hybrid": "bound its last source, e.g. 'live.scan.bounded.mode' = 'latest-offset'; or end a backfill at its 'switch-time' or earlier",
    "nexmark": "give it 'events.num'",
}


@record
class BatchStatus:
    """What a run does at this moment.

    Attributes:
        doing: `starting Spark`, `planning`, `sink 'out'`, `committing`.
        running_ms: since the beginning.
        stages: of Spark, that run.
    """

    doing: str
    running_ms: float
    stages: tuple[StageProgress, ...] = ()


@record
class BatchReport:
    """What became of a run.

    Attributes:
        name: of the pipeline.
        rows: by sink, in the pipeline's order.
        start_ms: until Spark was there.
        running_ms: from then on.
        left_out: by operator the rows that could not be processed; not counted on Spark Connect.
    """

    name: str
    rows: Mapping[str, int]
    start_ms: float
    running_ms: float
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)


BatchListener = Callable[[BatchStatus], None]


def run_batch(
    compiled: CompiledPipeline,
    options: SparkOptions,
    *,
    listener: BatchListener | None = None,
    clock: Clock | None = None,
) -> BatchReport:
    """Run a pipeline on Spark to its end; all of its outputs appear, or none.

    Args:
        compiled: in batch mode.
        options: where to run.
        listener: told a few times a second what is being done, on a thread of its own.
        clock: processing time, which stands still for the whole run; the system's if None.

    Raises:
        PipelineError: a source has no end.
        OptionError: the options contradict each other or flowrun's semantics.
        SetupError: Spark cannot be started or reached; or a sink with `sink.mode: error` has output of an earlier run.
        JobFailedError: the run failed; nothing of it is visible.
    """
    clock = SystemClock() if clock is None else clock
    plan = compiled.optimised
    check_bounded(plan)
    check_outputs(plan)
    began = clock.monotonic_ns()
    with watching(listener, clock) as watch, spark_session(options, plan.name) as session:
        started = clock.monotonic_ns()
        watch.attach(session)
        job = OutputJob(plan.name, ALL, uuid.uuid4().hex)
        warn_of_odd_data(plan)
        result = execute(plan, session, job, clock.now_ms(), watcher=watch.now_doing)
        ended = clock.monotonic_ns()
        watch.close()
    return BatchReport(plan.name, result.rows, (started - began) / 1e6, (ended - started) / 1e6, result.left_out)


def explain_batch(
    compiled: CompiledPipeline, options: SparkOptions, form: str, clock: Clock | None = None, *, verbose: bool = False
) -> str:
    """What Spark makes of a pipeline, as `text`, `json` or `mermaid`: which steps are native, which hosted, and, as JSON or if it is
    `verbose`, Spark's own plan.

    Raises as `run_batch`.
    """
    clock = SystemClock() if clock is None else clock
    check_bounded(compiled.optimised)
    with spark_session(options, compiled.plan.name) as session:
        return explain_on_spark(plan_on_spark(compiled.optimised, session, clock.now_ms()), form, verbose=verbose)


def check_bounded(plan: Plan) -> None:
    """Raise PipelineError if a source of the plan has no end, with all that have none. A watched folder ends with what is there now."""
    without_end = {
        node.table.name: node
        for node in walk_plan(plan)
        if isinstance(node, Scan) and make_source(node).boundedness is Boundedness.UNBOUNDED
    }
    problems = [endless(node, plan.text) for node in without_end.values()]
    if problems:
        raise PipelineError(problems)


def endless(scan: Scan, text: str) -> Diagnostic:
    """What is wrong with a source that has no end; `text` is the pipeline's."""
    remedy = _BOUNDING.get(scan.table.connector, "read it as a stream: --mode streaming")
    problem = Diagnostic(
        f"source '{scan.table.name}' has no end (connector {scan.table.connector}), and a batch reads its sources to the end",
        scan.hints.location,
        hint=remedy,
    )
    if scan.hints.location is None:
        return problem
    lines = text.splitlines()[scan.hints.location.line - 1 :][:1]
    return replace(problem, source_line=lines[0] if lines else None)


class Watch:
    """Tells a listener what is being done, from a thread."""

    def __init__(self, listener: BatchListener | None, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._began = clock.monotonic_ns()
        self._doing = STARTING
        self._progress: SparkProgress | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if listener is not None:
            self._thread = threading.Thread(target=self._run, args=(listener,), name="flowrun-progress", daemon=True)
            self._thread.start()

    def attach(self, session: SparkSession) -> None:
        """Spark is there."""
        self._doing = PLANNING
        if self._listener is not None:
            self._progress = SparkProgress(session)

    def now_doing(self, doing: str) -> None:
        self._doing = doing

    def close(self) -> None:
        """Tell nothing any more. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.detach()

    def detach(self) -> None:
        """Spark is about to go. Idempotent."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.close()

    def _run(self, listener: BatchListener) -> None:
        while not self._ended.wait(_LISTEN_EVERY_S):
            progress = self._progress
            stages = () if progress is None else progress.stages()
            listener(BatchStatus(self._doing, (self._clock.monotonic_ns() - self._began) / 1e6, stages))


@contextmanager
def watching(listener: BatchListener | None, clock: Clock) -> Iterator[Watch]:
    watch = Watch(listener, clock)
    try:
        yield watch
    finally:
        watch.close()
