"""Whether a version on trial is healthy. Pure: statuses in, a verdict out.

It is once all of this holds, and has held for `HealthRules.steady_ms`:

- all its subtasks run, or have come to their end, and none was ever restarted;
- a checkpoint was completed;
- its sources have read a row, if those of the version before were reading just before it was stopped;
- its watermark has moved, if that of the version before was moving just then.

It is not, at once, if a subtask fails; and if the above does not hold within `HealthRules.within_ms`. What it waits for then is the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from flowrun.core.record import record
from flowrun.core.units import format_duration
from flowrun.runners.versions.records import HealthRules
from flowrun.runtime.job_status import JobStatus, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState, JobState

_UP = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class Verdict(Enum):
    """What is known of a version on trial."""

    OPEN = "open"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@record
class Judgement:
    """A verdict, and what is missing, or wrong."""

    verdict: Verdict
    reason: str = ""


class HealthWatch:
    """Judges one version.

    Args:
        rules: by which.
        source_ids: the vertices that read from outside.
        began_ms: on any steady clock: when it was started.
    """

    def __init__(self, rules: HealthRules, source_ids: frozenset[str], began_ms: float) -> None:
        self._rules = rules
        self._source_ids = source_ids
        self._began_ms = began_ms
        self._well_since_ms: float | None = None
        self._first_watermarks: dict[str, int] = {}
        self._watermark_moved = False

    def look(self, status: JobStatus, now_ms: float) -> Judgement:
        """Judge by one more status; `now_ms` on the clock of `began_ms`."""
        self._watch_watermarks(status.vertices)
        if status.restarts:
            return Judgement(Verdict.UNHEALTHY, f"it failed: {status.last_failure or 'no reason was given'}")
        missing = self._missing(status)
        if missing:
            self._well_since_ms = None
        elif self._well_since_ms is None:
            self._well_since_ms = now_ms
        if self._well_since_ms is not None and (
            status.state is JobState.FINISHED or now_ms - self._well_since_ms >= self._rules.steady_ms
        ):
            return Judgement(Verdict.HEALTHY)
        if now_ms - self._began_ms >= self._rules.within_ms:
            reason = "; ".join(missing) or f"it was well for less than {format_duration(self._rules.steady_ms)}"
            return Judgement(Verdict.UNHEALTHY, f"after {format_duration(self._rules.within_ms)}: {reason}")
        return Judgement(Verdict.OPEN, "; ".join(missing))

    def _missing(self, status: JobStatus) -> list[str]:
        vertices = status.vertices
        if status.state is JobState.FINISHED or (
            vertices and all(v.states.keys() == {ExecutionState.FINISHED} for v in vertices)
        ):
            return []
        found: list[str] = []
        if status.waits_for is not None:
            found.append(f"it waits for {status.waits_for}")
        elif status.state is not JobState.RUNNING:
            found.append(f"it is {status.state.value}")
        else:
            found += [f"'{v.name}' does not run yet" for v in vertices if not _UP.issuperset(v.states)][:1]
        if status.checkpoints is None or not status.checkpoints.completed:
            why = None if status.checkpoints is None else status.checkpoints.last_failure
            found.append("no checkpoint was completed" + (f" ({why})" if why else ""))
        if self._rules.reads and not sum(v.records_in for v in vertices if v.vertex_id in self._source_ids):
            found.append("no row was read, while the version before was reading rows")
        if self._rules.moves_watermark and not self._watermark_moved:
            found.append("the watermark does not move, while that of the version before did")
        return found

    def _watch_watermarks(self, vertices: Sequence[VertexStatus]) -> None:
        for vertex in vertices:
            if vertex.watermark is not None:
                first = self._first_watermarks.setdefault(vertex.vertex_id, vertex.watermark)
                self._watermark_moved = self._watermark_moved or vertex.watermark > first


def is_up(status: JobStatus) -> bool:
    """Whether a job runs with all its subtasks, or has come to its end."""
    if status.state is JobState.FINISHED:
        return True
    return status.state is JobState.RUNNING and all(_UP.issuperset(v.states) for v in status.vertices)
