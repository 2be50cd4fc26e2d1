"""Takes a job, or some of its subtasks, to a checkpoint: at its start, and after failures. Used by the job master's thread only."""

from __future__ import annotations

import logging
from collections.abc import Collection

from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.runtime.checkpoint.assembly import logged_commits, pending_commits
from flowrun.runtime.checkpoint.restore import finished_vertices, restored_tasks
from flowrun.runtime.jobmaster.commits import CommitCoordinator
from flowrun.runtime.jobmaster.hooks import MasterHooks
from flowrun.runtime.jobmaster.job_state import OpenedState, RestorePoint
from flowrun.runtime.jobmaster.sources import JobSources
from flowrun.runtime.messages import RestoredTask

_log = logging.getLogger(__name__)


class Recovery:
    """What subtasks restore from, and everything else that has to go back with them.

    Methods raise `SourceError`, `CommitError` and `StateError`; they may block on I/O.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        state: OpenedState,
        sources: JobSources,
        commits: CommitCoordinator,
        hooks: MasterHooks,
    ) -> None:
        self._graph = graph
        self._state = state
        self._sources = sources
        self._commits = commits
        self._hooks = hooks
        self._tasks: dict[ExecutionVertexId, RestoredTask] = {}

    def restored(self, vertex: ExecutionVertexId) -> RestoredTask | None:
        """What a subtask restores from; None: the beginning."""
        return self._tasks.get(vertex)

    def start(self) -> None:
        """Take the job to where it was told to restore from, before anything runs.

        What the checkpoint holds of sinks that had come to their end is committed here; the others submit theirs when they open.
        """
        point = self._state.restored
        if point is None:
            self._sources.begin(None)
            return
        _log.info(
            "job '%s' goes on from %s %d in %s",
            self._state.job_graph.name,
            point.metadata.kind.value,
            point.metadata.checkpoint_id,
            point.root,
        )
        finished = self._deal(point)
        self._state.storage.note_commits(logged_commits(point.metadata))
        self._commits.go_back_to(pending_commits(point.metadata))
        self._commits.commit_owed(finished)
        if self._state.continued:
            self._commits.discard_orphans(self._state.identity.lineage, self._state.needed_commits)
        self._hooks.restore(point.metadata)
        self._sources.begin(point.metadata, finished)

    def go_back(
        self, point: RestorePoint | None, vertices: Collection[ExecutionVertexId]
    ) -> frozenset[ExecutionVertexId]:
        """Take subtasks, whose attempts are over, to a checkpoint of this run, or to the beginning.

        Gives the subtasks of the whole job that are finished there.
        """
        for problem in self._commits.abort_uncovered(vertices):
            _log.warning("%s", problem)
        finished: frozenset[str] = frozenset()
        if point is None:
            self._tasks.clear()
        else:
            finished = self._deal(point)
            self._commits.commit_owed(finished)
        if len(set(vertices)) == sum(1 for _ in self._graph.all_vertices()):
            # No sink writes now. If some still did, their files could not be told from orphans.
            if self._state.takes_checkpoints:
                self._commits.discard_orphans(self._state.identity.lineage, self._state.needed_commits)
            self._hooks.restore(None if point is None else point.metadata)
        metadata = None if point is None else point.metadata
        began_here = point is self._state.restored
        self._sources.go_back(metadata, finished, {v.vertex_id for v in vertices}, to_beginning=began_here)
        return frozenset(v.id for v in self._graph.all_vertices() if v.id.vertex_id in finished)

    def _deal(self, point: RestorePoint) -> frozenset[str]:
        self._tasks = restored_tasks(point.metadata, point.root, self._graph)
        return finished_vertices(point.metadata, self._graph)
