"""The progress of Spark: the stages that run, and their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowrun.core.record import record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@record
class StageProgress:
    """A stage that runs. The ids of stages count from 0 in each session."""

    stage_id: int
    tasks: int
    done: int
    failed: int = 0


class SparkProgress:
    """Reads the progress of a session; any thread may use it.

    A Connect server sends the progress of the present query by itself; a session in this process is asked for it.
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
        except Exception:  # the error is raised where the job is run
            return ()
        return tuple(
            StageProgress(s.stageId, s.numTasks, s.numCompletedTasks, s.numFailedTasks) for s in found if s is not None
        )

    def close(self) -> None:
        """Stop listening to the server."""
        if self._is_remote:
            self._session.removeProgressHandler(self._take)

    def _take(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running = () if done or stages is None else stages
        self._told = tuple(StageProgress(s.stage_id, s.num_tasks, s.num_completed_tasks) for s in running)
