"""All sources of a job: their enumerators from start to end, over restarts too. Used by the job master's thread only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

from flowrun.api.source import JsonValue
from flowrun.core.clock import Clock
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.jobmaster.ordered_sources import OrderedSources
from flowrun.runtime.jobmaster.source_coordinator import SourceCoordinator, SplitAnswer
from flowrun.runtime.mailbox import Post
from flowrun.runtime.messages import SplitRequest
from flowrun.runtime.timers import TimerThread
from flowrun.state.checkpoints import CheckpointMetadata, OperatorMetadata

_log = logging.getLogger(__name__)
_SHOWN = 3


class SourceError(Exception):
    """The enumerator of one source failed; `__cause__` says why."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source


class _Source:
    """One source vertex. `starts` tells the discovery of this enumerator from that of one before it."""

    def __init__(self, operator_id: str, coordinator: SourceCoordinator) -> None:
        self.operator_id = operator_id
        self.coordinator = coordinator
        self.starts = 0


class JobSources:
    """The enumerators of one job.

    Args:
        job_graph: the job.
        clock: for enumerators.
        timers: for discovery.
        post: puts a mail into the job master's mailbox.
        send: takes the answers for readers.
        failed: is told when discovery fails.
        in_order: sources whose subtasks without a split end before the others begin; None: there are none.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        *,
        clock: Clock,
        timers: TimerThread,
        post: Post,
        send: Callable[[SplitAnswer], None],
        failed: Callable[[SourceError], None],
        in_order: OrderedSources | None = None,
    ) -> None:
        self._timers = timers
        self._post = post
        self._send = send
        self._failed = failed
        self._closed = False
        self._in_order = in_order
        self._to_end: dict[ExecutionVertexId, set[ExecutionVertexId]] = {}
        """Source subtask without a split → the subtasks that must have ended before it counts as ended."""
        self._sources = {
            vertex.vertex_id: _Source(
                operator.operator_id,
                SourceCoordinator(
                    operator.name,
                    operator.source,
                    vertex.parallelism,
                    clock,
                    unneeded_end_first=in_order is not None and vertex.vertex_id in in_order.vertices,
                ),
            )
            for vertex in job_graph.vertices
            for operator in vertex.operators
            if operator.source is not None
        }

    def begin(self, restored: CheckpointMetadata | None, finished: Collection[str] = ()) -> None:
        """Start all enumerators as a run begins: afresh, or from the state of an older run with what came since; may block on I/O.

        Args:
            restored: what the run restores from; a source that it does not know starts afresh.
            finished: vertices that read nothing any more, whatever came since: what they keep after their end is gone.

        Raises:
            SourceError: one could not start.
        """

        def begin(source: _Source, saved: OperatorMetadata | None) -> None:
            source.coordinator.begin(None if saved is None else saved.enumerator, resumed=saved is not None)

        self._start(restored, finished, None, begin)
        for vertex_id in finished:
            if (source := self._sources.get(vertex_id)) is not None:
                self._say_what_is_not_read(source)

    def go_back(
        self,
        restored: CheckpointMetadata | None,
        finished: Collection[str] = (),
        vertices: Collection[str] | None = None,
        *,
        to_beginning: bool = False,
    ) -> None:
        """Restart the enumerators of these vertices (all if None) within a run; may block on I/O.

        Args:
            restored: the checkpoint; a source that it does not know starts afresh.
            finished: vertices that read nothing any more: their enumerators are closed.
            vertices: which.
            to_beginning: `restored` is what the run began with: what sources found then counts, not what is there now.

        Raises:
            SourceError: one could not start.
        """

        def start(source: _Source, saved: OperatorMetadata | None) -> None:
            state = None if saved is None else saved.enumerator
            if to_beginning:
                source.coordinator.begin_again(state)
            else:
                source.coordinator.start(state)

        self._start(restored, finished, vertices, start)

    def _start(
        self,
        restored: CheckpointMetadata | None,
        finished: Collection[str],
        vertices: Collection[str] | None,
        start: Callable[[_Source, OperatorMetadata | None], None],
    ) -> None:
        for vertex_id, source in self._sources.items():
            if vertices is not None and vertex_id not in vertices:
                continue
            source.starts += 1
            self._to_end = {s: left for s, left in self._to_end.items() if s.vertex_id != vertex_id}
            saved = None if restored is None else restored.operators.get(source.operator_id)
            try:
                if vertex_id in finished:
                    source.coordinator.end(None if saved is None else saved.enumerator)
                else:
                    start(source, saved)
            except Exception as error:
                raise SourceError(source.coordinator.name) from error
            self._schedule_discovery(source, source.starts)

    def _say_what_is_not_read(self, source: _Source) -> None:
        coordinator = source.coordinator
        try:
            came = coordinator.not_read(coordinator.snapshot())
        except Exception as error:
            raise SourceError(coordinator.name) from error
        if came:
            _log.warning(
                "'%s' had been read to its end: %d that came since are not read (%s%s); what follows it has closed its windows and let "
                "go of its state. Run from the beginning to read them, or watch the folder (source.monitor-interval) from the start",
                coordinator.name,
                len(came),
                ", ".join(came[:_SHOWN]),
                ", …" if len(came) > _SHOWN else "",
            )

    def request(self, request: SplitRequest) -> None:
        """A reader asks for a split.

        Raises:
            SourceError: the enumerator failed.
        """
        source = self._sources[request.vertex.vertex_id]
        if self._in_order is not None and source.coordinator.looks_ahead:
            self._look_ahead(self._in_order)
        self._answer(source, lambda: source.coordinator.request(request))

    def _look_ahead(self, in_order: OrderedSources) -> None:
        unneeded: list[ExecutionVertexId] = []
        for vertex_id, source in self._sources.items():
            try:
                unneeded += (ExecutionVertexId(vertex_id, s) for s in sorted(source.coordinator.look_ahead()))
            except Exception as error:
                raise SourceError(source.coordinator.name) from error
        self._to_end |= in_order.must_end(unneeded)

    def ended(self, vertex: ExecutionVertexId) -> None:
        """A subtask has ended well.

        Raises:
            SourceError: the enumerator failed.
        """
        for source_vertex, left in list(self._to_end.items()):
            left.discard(vertex)
            if not left:
                del self._to_end[source_vertex]
                source = self._sources[source_vertex.vertex_id]
                self._answer(source, partial(source.coordinator.ended, source_vertex.subtask))

    def snapshot(self) -> dict[str, JsonValue]:
        """Operator id → what its enumerator needs to restore from here.

        Raises:
            SourceError: an enumerator failed.
        """
        found: dict[str, JsonValue] = {}
        for source in self._sources.values():
            try:
                found[source.operator_id] = source.coordinator.snapshot()
            except Exception as error:
                raise SourceError(source.coordinator.name) from error
        return found

    def close(self) -> list[str]:
        """Close all; gives what went wrong, one text a source."""
        self._closed = True
        problems = []
        for source in self._sources.values():
            try:
                source.coordinator.close()
            except Exception as error:
                problems.append(f"closing the splits of '{source.coordinator.name}' failed: {error}")
        return problems

    def _answer(self, source: _Source, ask: Callable[[], list[SplitAnswer]]) -> None:
        try:
            answers = ask()
        except Exception as error:
            raise SourceError(source.coordinator.name) from error
        for answer in answers:
            self._send(answer)

    def _schedule_discovery(self, source: _Source, start: int) -> None:
        interval_ms = source.coordinator.discovery_interval_ms
        if interval_ms is None:
            return

        def discover() -> None:
            if self._closed or start != source.starts:
                return
            try:
                self._answer(source, source.coordinator.discover)
            except SourceError as error:
                self._failed(error)
                return
            self._schedule_discovery(source, start)

        self._timers.after(interval_ms, lambda: self._post(discover))
