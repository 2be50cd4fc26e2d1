"""One run of one test: what happens is done to the job step by step, and what sinks hold is looked at on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field

from flowrun.connectors.live_rows import listening
from flowrun.core.elements import IDLE, RecordBatch, Watermark
from flowrun.core.record import record
from flowrun.errors import JobFailedError, Location
from flowrun.frontend.pipeline_tests.declaration import RESCALED, RESTORED
from flowrun.frontend.pipeline_tests.document import Action, End, Give, Look, Pass, PipelineTest, Reach, Rest
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.pipeline_tests.captured import CapturedRows, Change
from flowrun.runners.pipeline_tests.one_thread.cluster import OneThreadCluster
from flowrun.runners.pipeline_tests.one_thread.timers import CallersClock
from flowrun.runners.pipeline_tests.subject import Subject
from flowrun.runtime.job_status import JobStatus
from flowrun.runtime.jobmaster.job_master import JobMaster

DROPPED = "numLateRecordsDropped"


@record(eq=False)
class Seen:
    """What there was at one moment.

    Attributes:
        location: of the step that looked; None: the end.
        changes: by sink, all since the beginning.
        before: by sink, how many of them the step before had seen that looked at the sink.
        late: rows that were dropped as late since the beginning, by step.
    """

    location: Location | None
    changes: Mapping[str, Sequence[Change]]
    before: Mapping[str, int]
    late: Mapping[str, int]


@record(eq=False)
class Outcome:
    """What came of a run.

    Attributes:
        looks: what steps saw, in order, and last what there was at the end.
        error: the message of the failure; None: there was none.
        failed_at: the step during which the job failed.
        rows: by operator, how many rows it got and gave; of a run on one job graph.
    """

    looks: tuple[Seen, ...]
    error: str | None = None
    failed_at: Location | None = None
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def run_test(test: PipelineTest, subject: Subject, batches: Mapping[int, RecordBatch], variant: str) -> Outcome:
    """Run a test in one of its ways.

    Args:
        test: what happens.
        subject: the pipeline.
        batches: the rows of each `Give`, by `id`.
        variant: the way.
    """
    return _run(test, subject, batches, subject.jobs(variant), restores=variant in (RESTORED, RESCALED))


def run_graph(test: PipelineTest, subject: Subject, batches: Mapping[int, RecordBatch], graph: JobGraph) -> Outcome:
    """Run a test on a job graph of the pipeline, without restoring; see `run_test`."""
    return _run(test, subject, batches, (graph,), restores=False)


def _run(
    test: PipelineTest,
    subject: Subject,
    batches: Mapping[int, RecordBatch],
    jobs: Sequence[JobGraph],
    *,
    restores: bool,
) -> Outcome:
    with ExitStack() as stack:
        captured = {sink.name: CapturedRows(sink.schema) for sink in subject.sinks}
        for sink in subject.sinks:
            stack.enter_context(listening(sink.channel, captured[sink.name]))
        for table in subject.tables.values():
            table.begin()
        return _Run(test, subject, batches, jobs, captured, restores=restores).outcome()


class _Run:
    def __init__(
        self,
        test: PipelineTest,
        subject: Subject,
        batches: Mapping[int, RecordBatch],
        jobs: Sequence[JobGraph],
        captured: Mapping[str, CapturedRows],
        *,
        restores: bool,
    ) -> None:
        self._test = test
        self._subject = subject
        self._batches = batches
        self._jobs = jobs
        self._restores = restores
        self._captured = captured
        self._late: Counter[str] = Counter()
        """Of jobs that were killed."""
        self._seen: dict[str, int] = dict.fromkeys(captured, 0)
        self._looks: list[Seen] = []
        self._number = 0

    def outcome(self) -> Outcome:
        with OneThreadCluster(CallersClock(self._test.surroundings.now_ms)) as cluster:
            job = self._start(cluster)
            at: Location | None = None
            try:
                for place, action in enumerate(self._test.actions):
                    at = action.location
                    if isinstance(action, Look):
                        self._look(job, action.location, [e.sink for e in action.expected])
                        continue
                    self._do(action, cluster)
                    if cluster.result(job) is not None:
                        continue  # all sources have ended
                    if self._restores and place + 1 < len(self._test.actions):
                        job = self._restore(cluster, job)
                for name in sorted(self._subject.bounded):
                    self._subject.tables[name].end()
                cluster.settle()
                cluster.result(job)
            except JobFailedError as error:
                rows = self._rows(self._look(job, None, ()))
                return Outcome(tuple(self._looks), str(error), at, rows)
            rows = self._rows(self._look(job, None, ()))
            if cluster.result(job) is None:
                cluster.kill(job)
        return Outcome(tuple(self._looks), rows=rows)

    def _start(self, cluster: OneThreadCluster) -> JobMaster:
        graph = self._jobs[self._number % len(self._jobs)]
        self._number += 1
        return cluster.start(graph)

    def _restore(self, cluster: OneThreadCluster, job: JobMaster) -> JobMaster:
        """Kill the job, and have another one go on from where it was."""
        cluster.take_savepoint(job)
        self._late += _dropped(job.status())
        cluster.kill(job)
        for table in self._subject.tables.values():
            table.forget_readers()
        return self._start(cluster)

    def _do(self, action: Action, cluster: OneThreadCluster) -> None:
        tables = self._subject.tables
        match action:
            case Give(source=source):
                batch = self._batches[id(action)]
                if batch.num_rows:
                    tables[source].give(batch)
            case Reach(source=source, time_ms=time_ms):
                for name in sorted(self._subject.timed) if source is None else (source,):
                    tables[name].give(Watermark(time_ms))
            case Rest(source=source):
                tables[source].give(IDLE)
            case End(source=source):
                for name in sorted(tables) if source is None else (source,):
                    tables[name].end()
            case Pass(ms=ms):
                cluster.advance(ms)
        cluster.settle()

    def _rows(self, status: JobStatus) -> dict[str, tuple[int, int]]:
        """Rows that each operator got and gave."""
        if self._restores or len(self._jobs) > 1:
            return {}
        return {
            operator: (counters.get("numRecordsIn", 0), counters.get("numRecordsOut", 0))
            for vertex in status.vertices
            for operator, counters in vertex.counters.items()
        }

    def _look(self, job: JobMaster, location: Location | None, sinks: Sequence[str]) -> JobStatus:
        """Keep what there is now; gives the figures of the job."""
        status = job.status()
        changes = {name: tuple(rows.changes) for name, rows in self._captured.items()}
        self._looks.append(Seen(location, changes, dict(self._seen), dict(self._late + _dropped(status))))
        for name in sinks:
            self._seen[name] = len(changes[name])
        return status


def _dropped(status: JobStatus) -> Counter[str]:
    """Rows that a job has dropped as late, by step."""
    counts: Counter[str] = Counter()
    for vertex in status.vertices:
        for operator, counters in vertex.counters.items():
            if counters.get(DROPPED):
                counts[operator] += counters[DROPPED]
    return counts
