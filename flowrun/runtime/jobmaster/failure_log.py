"""The failures of a job that people are told of, and what came of each. Owned by the job master's thread; `records` is for any thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.runtime.jobmaster.execution import Executions
from flowrun.runtime.jobmaster.failure import place_of_failure
from flowrun.runtime.jobmaster.repeated_failures import forget_frames
from flowrun.runtime.jobmaster.scheduler_events import LocatedFailure
from flowrun.runtime.messages import LOCAL_WORKER
from flowrun.runtime.rpc.error_values import error_to_value

if TYPE_CHECKING:
    from flowrun.runtime.job_details import FailureRecord

PAST_FAILURES = 5
"""How many earlier failures the final error tells of."""
RECORDED = 50
RESTARTED = "restarted"
JOINED = "joined"
FAILED = "failed"


class FailureLog:
    """Remembers the last `RECORDED` failures as values: they hold no frames, so no dead task stays in memory.

    Args:
        graph: names the places.
        executions: know which worker a subtask ran in.
    """

    def __init__(self, graph: ExecutionGraph, executions: Executions) -> None:
        self._graph = graph
        self._executions = executions
        self.past: deque[LocatedFailure] = deque(maxlen=PAST_FAILURES)
        """Root causes of the last restarts, oldest first; without tracebacks, whose frames would keep dead tasks in memory."""
        self.records: tuple[FailureRecord, ...] = ()
        """Oldest first."""

    def file(self, failures: Iterable[LocatedFailure]) -> None:
        """The failures of a round are past, as the job goes on: the first is their root cause."""
        filed = list(failures)
        self.past.extend(filed[:1])
        for located in filed:
            forget_frames(located.failure.error)

    def add(
        self,
        located: LocatedFailure,
        at_ms: int,
        outcome: str,
        *,
        restarted: Collection[ExecutionVertexId] = (),
        delay_ms: int = 0,
        why_failed: str | None = None,
    ) -> None:
        """A failure is known, and what comes of it; see `FailureRecord`."""
        from flowrun.runtime.job_details import FailureRecord, RestartedSubtasks  # most jobs never fail

        grouped: dict[str, list[int]] = {}
        for vertex in sorted(restarted):
            grouped.setdefault(vertex.vertex_id, []).append(vertex.subtask)
        worker = None if located.vertex is None else self._executions.current(located.vertex).worker
        made = FailureRecord(
            at_ms,
            place_of_failure(self._graph, located),
            error_to_value(located.failure.error),
            located.failure.operator,
            None if located.vertex is None else located.vertex.vertex_id,
            None if located.vertex is None else located.vertex.subtask,
            None if worker == LOCAL_WORKER else worker,
            outcome,
            why_failed,
            tuple(RestartedSubtasks(vertex_id, tuple(subtasks)) for vertex_id, subtasks in grouped.items()),
            delay_ms,
        )
        self.records = (*self.records, made)[-RECORDED:]
