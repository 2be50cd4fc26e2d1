"""The checkpoint coordinator: a pure state machine. An event goes in, commands come out; no clock, thread or I/O is touched.

A checkpoint goes through three phases, and ends exactly once in `CompleteCheckpoint` or `AbortCheckpoint`:

    StartCheckpoint ▶ STARTING ─CheckpointStarted▶ COLLECTING ─all acknowledged or finished▶ STORING ─CheckpointStored▶ CompleteCheckpoint
                      (acknowledgements count already)                        `StoreCheckpoint`

    any phase ─ StartFailed, SubtaskDeclined, StoreFailed, its time-out, a newer one completed, JobIsInterrupted ▶ AbortCheckpoint

After Apache Flink's `CheckpointCoordinator`, `CheckpointFailureManager` and FLIP-147 (checkpoints after subtasks have finished).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from flowrun.core.elements import Alignment, CheckpointKind, CheckpointOptions
from flowrun.core.recovery import CheckpointSettings
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.checkpoint import events
from flowrun.runtime.checkpoint.pacing import Pacing
from flowrun.runtime.checkpoint.pending import CheckpointHistory, CompletedCheckpoint, PendingCheckpoint, Phase
from flowrun.runtime.checkpoint.records import CheckpointRecord


class CheckpointCoordinator:
    """Decides about the checkpoints of one job. Owned by the job master's thread.

    Args:
        settings: of periodic checkpoints; None: there are none, but snapshots that somebody asks for.
        subtasks: all of the job.
        first_id: number of the first checkpoint; larger than every number in the job's folder.
        retained: completed checkpoints of its lineage that the job takes over.
        now_ms: processing time, ms since the epoch. Times given later may jump; see `Pacing`.
        name_of: how messages call a subtask.
    """

    def __init__(
        self,
        settings: CheckpointSettings | None,
        subtasks: frozenset[ExecutionVertexId],
        *,
        first_id: int,
        retained: tuple[int, ...],
        now_ms: int,
        name_of: Callable[[ExecutionVertexId], str] = str,
    ) -> None:
        self._settings = settings
        self._name_of = name_of
        self._subtasks = subtasks
        self._next_id = first_id
        self._now_ms = now_ms
        self._pacing = Pacing(settings, now_ms)
        self._history = CheckpointHistory(1 if settings is None else settings.retain, retained)
        self._tolerable = None if settings is None else settings.tolerable_failures
        self._max_concurrent = _max_concurrent(settings)
        self._not_running: str | None = "it has not started"
        """Why the job does not run; None: it does."""
        self._finished: set[ExecutionVertexId] = set()
        self._attempts: Mapping[ExecutionVertexId, str] = {}
        self._pending: dict[int, PendingCheckpoint] = {}
        self._queue: deque[events.SnapshotRequested] = deque()
        self._stop_id: str | None = None
        """Request that stops the job: queued or under way."""
        self._stopped = False
        self._failures = 0
        """Periodic checkpoints that failed since the last completed one."""
        self._commands: list[events.CheckpointCommand] = []

    # What the job master reads.

    def status(self) -> events.CheckpointsStatus:
        """Checkpoints at this moment."""
        return self._history.status(len(self._pending))

    def records(self) -> tuple[CheckpointRecord, ...]:
        """The last checkpoints and savepoints that have ended, and those under way. Any thread."""
        pending = (checkpoint.record(self._pacing.elapsed_ms) for checkpoint in list(self._pending.values()))
        return (*self._history.records, *pending)

    @property
    def next_id(self) -> int:
        """The number of the next checkpoint or savepoint."""
        return self._next_id

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """What a restart goes back to: the last completed checkpoint, or the savepoint with which the job was stopped.

        None if none was completed since the coordinator was made: the job goes back to where it began.
        """
        return self._history.latest

    @property
    def retained(self) -> tuple[int, ...]:
        """Completed checkpoints to keep, oldest first."""
        return self._history.retained

    @property
    def pending(self) -> tuple[int, ...]:
        """Checkpoints and savepoints under way, oldest first."""
        return tuple(self._pending)

    @property
    def is_running(self) -> bool:
        """Whether checkpoints are taken at present."""
        return self._not_running is None

    @property
    def is_stopped(self) -> bool:
        """Whether a snapshot with which the job was to be stopped is complete."""
        return self._stopped

    # Events.

    def handle(self, event: events.CheckpointEvent, now_ms: int) -> list[events.CheckpointCommand]:
        """What to do about an event."""
        self._now_ms = now_ms
        self._pacing.advance(now_ms)
        self._commands = []
        self._dispatch(event)
        self._expire()
        self._trigger()
        self._wish()
        return self._commands

    def _dispatch(self, event: events.CheckpointEvent) -> None:
        match event:
            case events.JobIsRunning():
                self._run(event)
            case events.JobIsInterrupted(reason=reason):
                self._interrupt(reason)
            case events.TimePassed():
                self._pacing.woken()
            case events.SnapshotRequested():
                self._request(event)
            case events.SubtaskAcknowledged():
                self._acknowledge(event)
            case events.SubtaskDeclined():
                self._decline(event)
            case events.SubtaskFinished(vertex=vertex):
                self._finish(vertex)
            case events.CheckpointStarted(checkpoint_id=number):
                self._started(number)
            case (
                events.StartFailed(checkpoint_id=number, reason=reason)
                | events.StoreFailed(checkpoint_id=number, reason=reason)
            ):
                self._fail(number, reason)
            case events.CheckpointStored(checkpoint_id=number, path=path):
                self._complete(number, path)

    def _run(self, event: events.JobIsRunning) -> None:
        self._attempts = dict(event.attempts)
        if self._not_running is not None:
            self._not_running = None
            self._pacing.start()
        for vertex in event.finished:
            self._finish(vertex)

    def _interrupt(self, reason: str) -> None:
        """End everything that is under way, without counting it as a failure."""
        self._not_running = reason
        self._finished.clear()
        self._attempts = {}
        self._failures = 0
        self._pacing.stop()
        for pending in list(self._pending.values()):
            self._abort(pending, reason, failed=False)
        for request in self._queue:
            self._commands.append(events.AnswerRequest(request.request_id, None, reason))
        self._queue.clear()
        self._stop_id, self._stopped = None, False

    def _request(self, event: events.SnapshotRequested) -> None:
        refusal = None
        if self._not_running is not None:
            refusal = f"the job is not running: {self._not_running}"
        elif self._stopped:
            refusal = "the job has been stopped"
        elif self._stop_id is not None:
            refusal = "the job is being stopped already"
        if refusal is not None:
            self._commands.append(events.AnswerRequest(event.request_id, None, refusal))
            return
        if event.options.stop:
            self._stop_id = event.request_id
        self._queue.append(event)

    def _acknowledge(self, event: events.SubtaskAcknowledged) -> None:
        number, vertex, attempt = event.checkpoint_id, event.vertex, event.attempt_id
        pending = self._pending.get(number)
        if pending is None:
            stray = self._history.is_stray(number, vertex, attempt)
        elif not self._is_foreign(vertex, attempt) and pending.acknowledge(vertex, attempt, event.snapshot):
            self._progress(pending)
            return
        else:
            stray = pending.attempts.get(vertex) != attempt  # else a duplicate: its files are those that were accepted
        if stray:
            self._commands.append(events.DiscardSnapshot(number, event.snapshot))
            if pending is not None and vertex in pending.finished and not self._is_foreign(vertex, attempt):
                # It ended after its barrier, so what is being stored would lose the rows between the two.
                self._abort(pending, f"{self._name_of(vertex)} acknowledged only after it had finished", failed=True)

    def _decline(self, event: events.SubtaskDeclined) -> None:
        pending = self._pending.get(event.checkpoint_id)
        if pending is None or self._is_foreign(event.vertex, event.attempt_id) or pending.phase is Phase.STORING:
            return
        self._abort(pending, f"{self._name_of(event.vertex)} declined: {event.reason}", failed=True)

    def _is_foreign(self, vertex: ExecutionVertexId, attempt_id: str) -> bool:
        return vertex not in self._subtasks or self._attempts.get(vertex, attempt_id) != attempt_id

    def _finish(self, vertex: ExecutionVertexId) -> None:
        # Once the job is stopped, subtasks end at a barrier, not at the end of their input: that says nothing about the rest.
        if self._stopped or vertex not in self._subtasks:
            return
        self._finished.add(vertex)
        for pending in list(self._pending.values()):
            pending.finish(vertex)
            self._progress(pending)

    def _started(self, number: int) -> None:
        pending = self._pending.get(number)
        if pending is not None and pending.phase is Phase.STARTING:
            pending.phase = Phase.COLLECTING
            self._progress(pending)

    def _fail(self, number: int, reason: str) -> None:
        pending = self._pending.get(number)
        if pending is not None:
            self._abort(pending, reason, failed=True)

    # What follows from events.

    def _progress(self, pending: PendingCheckpoint) -> None:
        if pending.is_ready:
            pending.phase = Phase.STORING
            self._commands.append(
                events.StoreCheckpoint(pending.checkpoint_id, dict(pending.snapshots), frozenset(pending.finished))
            )

    def _complete(self, number: int, path: str) -> None:
        pending = self._pending.get(number)
        if pending is None or pending.phase is not Phase.STORING:
            return
        del self._pending[number]
        self._history.complete(pending, path, self._pacing.elapsed_ms)
        self._pacing.begin_pause()
        self._commands.append(events.CompleteCheckpoint(number, pending.options, self._history.retained))
        self._answer(pending, path, None)
        if not pending.is_savepoint:
            self._failures = 0
        if pending.options.stop:
            self._stop_id, self._stopped = None, True
            self._pacing.stop()
        if pending.options.stop or not pending.is_savepoint:
            self._subsume(pending, path)

    def _subsume(self, newer: PendingCheckpoint, path: str) -> None:
        """End older checkpoints that are not needed any more. Requests for one of them get the newer, which holds more."""
        for older in list(self._pending.values()):
            if older.is_subsumable and (older.checkpoint_id < newer.checkpoint_id or newer.options.stop):
                self._answer(older, path, None)
                older.request_id = None
                self._abort(older, f"checkpoint {newer.checkpoint_id} is newer and complete", failed=False)

    def _abort(self, pending: PendingCheckpoint, reason: str, *, failed: bool) -> None:
        del self._pending[pending.checkpoint_id]
        periodic = pending.request_id is None
        self._history.abort(pending, reason, self._pacing.elapsed_ms, failed=failed)
        self._pacing.begin_pause()
        self._commands.append(events.AbortCheckpoint(pending.checkpoint_id, reason, tuple(pending.snapshots.values())))
        self._answer(pending, None, reason)
        if pending.options.stop:
            self._stop_id = None
        if failed and periodic:
            self._count_failure(reason)

    def _count_failure(self, reason: str) -> None:
        self._failures += 1
        if self._tolerable is None or self._failures <= self._tolerable:
            return
        failures = "a checkpoint failed" if self._failures == 1 else f"{self._failures} checkpoints in a row failed"
        reason = f"{failures} ({self._tolerable} tolerated), the last one because: {reason}"
        self._commands.append(events.FailJob(reason))
        self._interrupt(reason)

    def _answer(self, pending: PendingCheckpoint, path: str | None, failure: str | None) -> None:
        if pending.request_id is not None:
            self._commands.append(events.AnswerRequest(pending.request_id, path, failure))

    def _expire(self) -> None:
        for pending in list(self._pending.values()):
            # Ending one may end all: looked up anew.
            if pending.deadline <= self._pacing.elapsed_ms and pending.checkpoint_id in self._pending:
                self._abort(pending, self._timed_out(pending), failed=True)

    def _timed_out(self, pending: PendingCheckpoint) -> str:
        limit = f"it was not complete after {pending.deadline - pending.started} ms"
        match pending.phase:
            case Phase.STARTING:
                return f"{limit}: still being started"
            case Phase.STORING:
                return f"{limit}: still being stored"
            case Phase.COLLECTING:
                missing = sorted(pending.missing)
                more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
                return f"{limit}: no acknowledgement from {', '.join(map(self._name_of, missing[:3]))}{more}"

    def _trigger(self) -> None:
        """Begin what is due: first what users ask for, which waits for neither interval nor pause, then a periodic one."""
        while self.is_running and self._queue and self._has_room:
            request = self._queue.popleft()
            self._start(request.options, request.directory, request.request_id)
        due = self._next_periodic
        if due is not None and due <= self._pacing.elapsed_ms:
            self._start(CheckpointOptions(), None, None)
            self._pacing.start()

    @property
    def _has_room(self) -> bool:
        return len(self._pending) < self._max_concurrent

    @property
    def _next_periodic(self) -> int | None:
        """When the next periodic checkpoint is to be triggered; None: not before something else happens."""
        useless = self._stopped or self._stop_id is not None or len(self._finished) == len(self._subtasks)
        return None if useless or not self._has_room else self._pacing.periodic_due

    def _start(self, options: CheckpointOptions, directory: str | None, request_id: str | None) -> None:
        number, self._next_id = self._next_id, self._next_id + 1
        pending = PendingCheckpoint(
            number,
            self._now_ms,
            self._pacing.elapsed_ms,
            self._pacing.deadline,
            aligned_options(options, self._settings),
            request_id,
            missing=set(self._subtasks - self._finished),
            finished=set(self._finished),
        )
        self._pending[number] = pending
        self._commands.append(
            events.StartCheckpoint(number, self._now_ms, pending.options, directory, frozenset(self._finished))
        )

    def _wish(self) -> None:
        wish = self._pacing.wake(self._next_periodic, (p.deadline for p in self._pending.values()))
        if wish is not None:
            self._commands.append(wish)

    def check_invariants(self) -> None:
        """Pass if the state is one that may be; for tests. Raises AssertionError."""
        pendings = list(self._pending.values())
        assert len(pendings) <= self._max_concurrent
        assert list(self._pending) == sorted(self._pending), "numbers grow"
        assert all(p.checkpoint_id < self._next_id for p in pendings)
        for p in pendings:
            assert p.missing | p.finished | set(p.snapshots) == self._subtasks
            assert len(p.missing) + len(p.finished) + len(p.snapshots) == len(self._subtasks)
            assert p.attempts.keys() == p.snapshots.keys()
            assert not p.is_ready, "it would be stored"
            assert p.phase is not Phase.STORING or not p.missing
            assert p.deadline > self._pacing.elapsed_ms
        assert not self._queue or not self._has_room, "a request waits only for room"
        assert self.is_running or not (self._pending or self._queue)
        stops = [r.request_id for r in self._queue if r.options.stop]
        stops += [p.request_id for p in pendings if p.options.stop and p.request_id is not None]
        assert stops == ([] if self._stop_id is None else [self._stop_id])
        assert not (self._stopped and self._stop_id)
        latest = self._history.latest
        retained = self._history.retained
        assert self._tolerable is None or self._failures <= self._tolerable
        assert list(retained) == sorted(set(retained))
        assert latest is None or latest.checkpoint_id < self._next_id


def _max_concurrent(settings: CheckpointSettings | None) -> int:
    if settings is None or settings.unaligned or settings.min_pause_ms > 0:
        return 1
    return max(1, settings.max_concurrent)


def aligned_options(options: CheckpointOptions, settings: CheckpointSettings | None) -> CheckpointOptions:
    """How the barriers of a snapshot meet: savepoints, and what stops a job, always aligned; checkpoints as the settings say.

    >>> aligned_options(CheckpointOptions(), CheckpointSettings(interval_ms=1, unaligned=True)).alignment
    <Alignment.UNALIGNED: 'unaligned'>
    """
    alignment, timeout_ms = Alignment.ALIGNED, None
    if settings is not None and options.kind is CheckpointKind.CHECKPOINT and not options.stop:
        if settings.mode == "at_least_once":
            alignment = Alignment.AT_LEAST_ONCE
        elif settings.unaligned and settings.alignment_timeout_ms > 0:
            timeout_ms = settings.alignment_timeout_ms
        elif settings.unaligned:
            alignment = Alignment.UNALIGNED
    return replace(options, alignment=alignment, alignment_timeout_ms=timeout_ms)
