"""A job of the command line that can be rescaled: how it is compiled, and started again, at another parallelism."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from flowrun.core.clock import SystemClock
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.rescaling import JobVersion, RescalableJob, Rescaling
from flowrun.runtime.watchdog.job_board import JobBoard

if TYPE_CHECKING:
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.program import CompiledProgram
    from flowrun.runners.recompiling import Recompiling
    from flowrun.runtime.cluster.worker_cluster import WorkerCluster


@record(eq=False)
class JobPlace:
    """Where the executions of a job run.

    Attributes:
        cluster: its worker processes; None: subtasks run in this process.
        board: where subtasks note what they are doing.
    """

    cluster: WorkerCluster | None
    board: JobBoard

    def slots(self) -> int:
        """Slots of the task managers that there are."""
        assert self.cluster is not None
        return self.cluster.slots_there or 0

    def start(self, version: JobVersion, options: JobStateOptions) -> LocalJob:
        """Start the execution that follows another one. Raises as `start_embedded`."""
        if self.cluster is not None:
            from flowrun.runners.workers import slots_needed

            number = version.job_graph.settings.slots.number
            self.cluster.prepare(number or slots_needed(version.job_graph), version.text)
        return start_embedded(version.job_graph, cluster=self.cluster, state=options, board=self.board)

    def check(self, job_graph: JobGraph) -> None:
        """Pass if there are slots for a job graph.

        Raises:
            StateError: there are not.
        """
        from flowrun.runners.workers import slots_needed

        needed = slots_needed(job_graph)
        there = job_graph.settings.slots.number if self.cluster is None else self.cluster.slots_there
        if there is not None and needed > there:
            raise StateError(
                f"it needs {needed} slots, there are {there}",
                hint="start more task managers" if self.cluster is not None else "set settings.slots.number",
            )


def start_rescalable(
    compiled: CompiledPipeline | CompiledProgram,
    options: JobStateOptions,
    recompiling: Recompiling | str,
    place: JobPlace,
) -> RescalableJob:
    """Start a job.

    Args:
        compiled: the job.
        options: from where it begins.
        recompiling: how it is compiled at another parallelism; a text: why it cannot be.
        place: where it runs.

    Raises:
        StateError: the state to restore from does not fit.
        SetupError: a sink does not begin afresh.
    """
    cluster = place.cluster
    text = None if cluster is None else cluster.text
    first = JobVersion(compiled.stream_graph.settings.parallelism, compiled.job_graph, compiled.text, text)
    job = start_embedded(compiled.job_graph, cluster=cluster, state=options, board=place.board)
    if isinstance(recompiling, str):
        return RescalableJob(job, first, options, recompiling)

    def compile_at(parallelism: int) -> JobVersion:
        found = recompiling.compile(parallelism)
        sent = None if cluster is None else recompiling.text(found)
        return JobVersion(parallelism, found.job_graph, found.text, sent)

    return RescalableJob(job, first, options, Rescaling(compile_at, place.check, place.start))


def compile_for_slots(
    recompiling: Recompiling, place: JobPlace, settle_ms: int, is_over: Callable[[], bool]
) -> CompiledPipeline | CompiledProgram | None:
    """Wait for task managers; gives a job for the slots that there are once their number has settled; None: `is_over` said so before.

    Raises:
        PipelineError: the job cannot be compiled so.
    """
    from flowrun.runners.reactive import first_settled, fitting_parallelism  # few jobs are reactive

    slots = first_settled(place.slots, settle_ms, is_over, SystemClock())
    if slots is None:
        return None
    most = min(vertex.max_parallelism for vertex in recompiling.compiled.job_graph.vertices)
    compiled = recompiling.compile(fitting_parallelism(slots, most, lambda p: recompiling.compile(p).job_graph))
    assert place.cluster is not None
    place.cluster.prepare(slots, recompiling.text(compiled))
    return compiled


def reacting(
    job: RescalableJob, recompiling: Recompiling | str, place: JobPlace, settle_ms: int | None
) -> AbstractContextManager[object]:
    """A context in which a job is rescaled as slots come and go, if it is to be."""
    if settle_ms is None or isinstance(recompiling, str):
        return nullcontext()
    from flowrun.runners.reactive import ReactiveScaler

    return ReactiveScaler(job, place.slots, lambda p: recompiling.compile(p).job_graph, settle_ms)
