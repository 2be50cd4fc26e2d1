"""What the executions of a job before the present one have left for its figures: a job that is rescaled counts on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.runtime.checkpoint.events import CheckpointsStatus
from flowrun.runtime.checkpoint.records import CheckpointRecord
from flowrun.runtime.job_status import JobResult, JobStatus, VertexStatus

if TYPE_CHECKING:
    from flowrun.runtime.job_details import FailureRecord, JobDetails, SubtaskDetails

_SHOWN_CHECKPOINTS = 10
_RECORDED = 100
_COUNTED = ("records_in", "records_out", "bytes_in", "bytes_out")


@record
class EarlierExecutions:
    """The sums of the executions of a job that are over.

    Attributes:
        running_ms: how long all of them ran.
        restarts: of all of them.
        last_failure: what the last restart was due to.
        checkpoints: of all of them.
        checkpoint_records: the last ones of all of them.
        failures: the last ones of all of them.
        subtasks: vertex id and subtask → its last details, with the sums of all of them.
        vertices: vertex id → its last status, with the sums of all of them. Another parallelism may chain other operators into a vertex:
            what no vertex of the present execution takes over is not shown.
    """

    running_ms: int = 0
    restarts: int = 0
    last_failure: str | None = None
    checkpoints: CheckpointsStatus | None = None
    vertices: Mapping[str, VertexStatus] = field(default_factory=dict)
    checkpoint_records: tuple[CheckpointRecord, ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    subtasks: Mapping[tuple[str, int], SubtaskDetails] = field(default_factory=dict)

    def with_execution(self, ended: JobDetails) -> EarlierExecutions:
        """With one more, as it stood at its end."""
        details = self.before_details(ended)
        now = details.status
        return EarlierExecutions(
            now.running_ms,
            now.restarts,
            now.last_failure,
            now.checkpoints,
            {**self.vertices, **{v.vertex_id: v for v in now.vertices}},
            details.checkpoints,
            details.failures,
            {**self.subtasks, **{(v.status.vertex_id, s.subtask): s for v in details.vertices for s in v.subtasks}},
        )

    def before_details(self, details: JobDetails) -> JobDetails:
        """An execution that followed these, with the checkpoints and failures of all of them; counters count on."""
        status = self.before(details.status)
        vertices = zip(details.vertices, status.vertices, strict=True)
        return replace(
            details,
            status=status,
            vertices=tuple(
                replace(
                    v, status=whole, subtasks=tuple(self._subtask_counting_on(whole.vertex_id, s) for s in v.subtasks)
                )
                for v, whole in vertices
            ),
            checkpoints=(*self.checkpoint_records, *details.checkpoints)[-_RECORDED:],
            failures=(*self.failures, *details.failures)[-_RECORDED:],
        )

    def before(self, status: JobStatus) -> JobStatus:
        """The status of an execution that followed these, as that of the whole job."""
        return replace(
            status,
            running_ms=self.running_ms + status.running_ms,
            restarts=self.restarts + status.restarts,
            last_failure=status.last_failure or self.last_failure,
            checkpoints=_joined(self.checkpoints, status.checkpoints),
            vertices=tuple(map(self._counting_on, status.vertices)),
        )

    def before_result(self, result: JobResult) -> JobResult:
        """The result of an execution that followed these, as that of the whole job."""
        counted: dict[str, Counter[str]] = {}
        for vertex in self.vertices.values():
            for operator, counters in vertex.counters.items():
                counted.setdefault(operator, Counter()).update(counters)
        accumulators = {name: _added(counted.get(name, {}), counters) for name, counters in result.accumulators.items()}
        return replace(
            result,
            duration_ms=self.running_ms + result.duration_ms,
            restarts=self.restarts + result.restarts,
            checkpoints=_joined(self.checkpoints, result.checkpoints),
            vertices=tuple(map(self._counting_on, result.vertices)),
            accumulators=accumulators,
        )

    def _counting_on(self, vertex: VertexStatus) -> VertexStatus:
        earlier = self.vertices.get(vertex.vertex_id)
        if earlier is None:
            return vertex
        sums = {name: getattr(earlier, name) + getattr(vertex, name) for name in _COUNTED}
        counters = {name: _added(earlier.counters.get(name, {}), now) for name, now in vertex.counters.items()}
        return replace(vertex, counters=counters, **sums)

    def _subtask_counting_on(self, vertex_id: str, subtask: SubtaskDetails) -> SubtaskDetails:
        earlier = self.subtasks.get((vertex_id, subtask.subtask))
        if earlier is None:
            return subtask
        sums = {name: getattr(earlier, name) + getattr(subtask, name) for name in _COUNTED}
        before = {o.operator_id: o.counters for o in earlier.operators}
        operators = tuple(
            replace(o, counters=_added(before.get(o.operator_id, {}), o.counters)) for o in subtask.operators
        )
        return replace(subtask, operators=operators, **sums)


def _added(earlier: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """The sum of each counter.

    >>> _added({"late": 2}, {"late": 1, "seen": 5})
    {'late': 3, 'seen': 5}
    """
    return {name: earlier.get(name, 0) + now.get(name, 0) for name in (*earlier, *(n for n in now if n not in earlier))}


def _joined(earlier: CheckpointsStatus | None, now: CheckpointsStatus | None) -> CheckpointsStatus | None:
    if earlier is None or now is None:
        return now or earlier
    return CheckpointsStatus(
        completed=earlier.completed + now.completed,
        failed=earlier.failed + now.failed,
        in_progress=now.in_progress,
        last=now.last or earlier.last,
        last_failure=now.last_failure or earlier.last_failure,
        history=(*earlier.history, *now.history)[-_SHOWN_CHECKPOINTS:],
    )
