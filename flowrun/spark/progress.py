"""How far Spark is: the stages that run, and their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowrun.core.record import record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@record
class StageProgress:
    """A stage that runs. `stage_id` counts from 0 in a session."""

    stage_id: int
    tasks: int
    done: int
    failed: int = 0


class SparkProgress:
    """Looks at a session from any thread.

    A Connect server tells of its own accord, and only of the query at hand; a session in this process is asked.
    """

    def __init__(self, session: SparkSession) -> None:
        self._told: tuple[StageProgress, ...] = ()
        self._session: Any = session
        self._is_remote = not hasattr(session, "_jsparkSession")
        if self._is_remote:
            self._session.registerProgressHandler(self._take)

    def stages(self) -> tuple[StageProgress, ...]:
        """The stages that run now, in order; empty between jobs, or if Spark is gone."""
        if self._is_remote:
            return self._told
        try:
            tracker = self._session.sparkContext.statusTracker()
            found = [tracker.getStageInfo(number) for number in sorted(tracker.getActiveStageIds())]
        except Exception:  # it is only being looked at: whoever runs the job gets the error
            return ()
        return tuple(
            StageProgress(s.stageId, s.numTasks, s.numCompletedTasks, s.numFailedTasks) for s in found if s is not None
        )

    def close(self) -> None:
        """Stop listening."""
        if self._is_remote:
            self._session.removeProgressHandler(self._take)

    def _take(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running = () if done or stages is None else stages
        self._told = tuple(StageProgress(s.stage_id, s.num_tasks, s.num_completed_tasks) for s in running)
