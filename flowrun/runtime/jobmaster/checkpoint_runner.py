"""Carries out what the checkpoint coordinator decides, on the job master's thread; an I/O thread reads and writes files.

One queue of I/O keeps the order: a checkpoint that is given up while it is stored is discarded right afterwards, and whatever is
restored comes later still.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import orjson

from flowrun.api.sink import Committable
from flowrun.api.source import JsonValue
from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointBarrier, CheckpointKind
from flowrun.errors import FlowrunError, StateError
from flowrun.runtime.checkpoint import events
from flowrun.runtime.checkpoint.assembly import StartedCheckpoint, assemble, logged_commits, pending_commits
from flowrun.runtime.checkpoint.coordinator import CheckpointCoordinator
from flowrun.runtime.checkpoint.records import CheckpointRecord
from flowrun.runtime.jobmaster.commits import CommitCoordinator
from flowrun.runtime.jobmaster.hooks import MasterHooks
from flowrun.runtime.jobmaster.io_thread import IoThread
from flowrun.runtime.jobmaster.job_state import OpenedState
from flowrun.runtime.jobmaster.sources import JobSources, SourceError
from flowrun.runtime.mailbox import Post
from flowrun.runtime.timers import TimerThread
from flowrun.state.checkpoints import CheckpointMetadata, StateFile, SubtaskSnapshot

_log = logging.getLogger(__name__)

_REMEMBERED = 100
"""How many given-up checkpoints are known by their folder."""


class RunningTasks(Protocol):
    """The subtasks that run now, as far as checkpoints are concerned."""

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Have every running source subtask take its snapshot."""
        ...

    def complete_checkpoint(self, checkpoint_id: int) -> None:
        """Tell every subtask that has not ended."""
        ...

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        """Tell every subtask that has not ended."""
        ...


class CheckpointListener(Protocol):
    """What the rest of the job master wants to know. Calls are made while commands are carried out."""

    def snapshot_answered(self, request_id: str, path: str | None, failure: str | None, hint: str | None) -> None:
        """Somebody's request is answered."""
        ...

    def stopped_at(self, path: str) -> None:
        """The snapshot with which the job is stopped is complete; said before subtasks are told."""
        ...

    def checkpoint_completed(self) -> None:
        """Restarts go back to a newer checkpoint from now on."""
        ...

    def broke(self, error: Exception) -> None:
        """Too many checkpoints failed, a hook did, or what a complete checkpoint holds could not be committed."""
        ...


class CheckpointRunner:
    """Between the coordinator and the world. Events that are caused by commands wait until these are carried out.

    Args:
        state: storage and identity of the job.
        coordinator: decides.
        tasks: get barriers and notices.
        sources: their enumerators are part of every checkpoint.
        commits: what finished subtasks left is, too.
        hooks: of the job.
        listener: is told what becomes of checkpoints.
        clock: processing time.
        timers: wake the coordinator.
        post: puts a mail into the job master's mailbox.
        io: reads and writes files.
    """

    def __init__(
        self,
        state: OpenedState,
        coordinator: CheckpointCoordinator,
        *,
        tasks: RunningTasks,
        sources: JobSources,
        commits: CommitCoordinator,
        hooks: MasterHooks,
        listener: CheckpointListener,
        clock: Clock,
        timers: TimerThread,
        post: Post,
        io: IoThread,
    ) -> None:
        self._state = state
        self._coordinator = coordinator
        self._tasks = tasks
        self._sources = sources
        self._commits = commits
        self._hooks = hooks
        self._listener = listener
        self._clock = clock
        self._timers = timers
        self._post = post
        self._io = io
        self._pending: deque[events.CheckpointEvent] = deque()
        self._handling = False
        self._identity = state.identity
        self._started: dict[int, StartedCheckpoint] = {}
        """Checkpoints whose folder is made, until they have ended."""
        self._beginning: set[int] = set()
        """Checkpoints whose folder is being made."""
        self._made: dict[int, str] = {}
        """Folders that the I/O thread has made and the job master has not been told of yet."""
        self._storing: dict[int, tuple[CheckpointMetadata, str]] = {}
        self._not_noted: set[int] = set()
        """Those among them whose commits were held back when they were stored, so that the log does not have them."""
        self._held_back: tuple[int, Mapping[str, Sequence[Committable]]] | None = None
        """The last checkpoint of which subtasks and committers were not told, and what it holds."""
        self._exists: set[int] = set()
        """Checkpoints that are stored, whatever the coordinator knows. For the I/O thread."""
        self._given_up: dict[int, str] = {}
        """Aborted checkpoint → its folder, for late acknowledgements."""
        self._wake_ms: int | None = None
        self._hint: tuple[str, str | None] | None = None
        """The last failure of storage, with its hint, for the message that reports it."""
        self.restore_point = state.restored
        """What a restart goes back to; None: the beginning."""
        self.status: events.CheckpointsStatus = coordinator.status()
        """Of the last moment that something happened; may be read by any thread."""

    @property
    def next_id(self) -> int:
        """The number of the next checkpoint or savepoint."""
        return self._coordinator.next_id

    def records(self) -> tuple[CheckpointRecord, ...]:
        """See `CheckpointCoordinator.records`. Any thread."""
        return self._coordinator.records()

    def handle(self, event: events.CheckpointEvent) -> None:
        """Give an event to the coordinator and carry out its commands."""
        self._pending.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._pending:
                commands = self._coordinator.handle(self._pending.popleft(), self._clock.now_ms())
                self.status = self._coordinator.status()
                for command in commands:
                    self._carry_out(command)
        finally:
            self._handling = False

    def after_io(self, then: Callable[[], None]) -> None:
        """Run a mail once everything that was left to the I/O thread by now is done."""
        self._io.submit(lambda: None, lambda _: then(), lambda _: then())

    def close(self) -> None:
        """Wait for the I/O thread, and give up the folder."""
        self._io.close()
        for number, target in self._made.items():  # whose mails nobody reads any more
            try:
                self._state.storage.discard(target, ())
            except FlowrunError as error:
                _clean_up_failed(f"checkpoint {number}", error)
        self._state.storage.close()

    def _carry_out(self, command: events.CheckpointCommand) -> None:
        match command:
            case events.WakeAt(time_ms=time_ms):
                self._wake_at(time_ms)
            case events.StartCheckpoint():
                self._begin(command)
            case events.StoreCheckpoint():
                self._store(command)
            case events.CompleteCheckpoint():
                self._complete(command)
            case events.AbortCheckpoint():
                self._abort(command)
            case events.DiscardSnapshot(checkpoint_id=number, snapshot=snapshot):
                self._discard_late(number, snapshot)
            case events.AnswerRequest(request_id=request_id, path=path, failure=failure):
                self._listener.snapshot_answered(request_id, path, failure, self._hint_of(failure))
            case events.FailJob(reason=reason):
                self._listener.broke(StateError(reason, hint=self._hint_of(reason)))

    def _wake_at(self, time_ms: int) -> None:
        self._wake_ms = time_ms

        def wake() -> None:
            if self._wake_ms == time_ms:
                self._wake_ms = None
                self.handle(events.TimePassed())

        # A duration: a clock that is set back must not hold checkpoints up.
        self._timers.after(max(time_ms - self._clock.now_ms(), 0), lambda: self._post(wake))

    # The phases of a checkpoint.

    def _begin(self, command: events.StartCheckpoint) -> None:
        number, options = command.checkpoint_id, command.options
        directory = command.directory or self._state.directory
        self._beginning.add(number)

        def make() -> None:
            self._made[number] = self._state.storage.begin(number, options.kind, directory)

        def made(_: object) -> None:
            target = self._made.pop(number)
            if number not in self._beginning:  # given up meanwhile
                self._discard(number, target, ())
                return
            self._beginning.discard(number)
            self._start(command, target)

        def failed(error: Exception) -> None:
            self._beginning.discard(number)
            self.handle(events.StartFailed(number, self._reason(error)))

        self._io.submit(make, made, failed)

    def _start(self, command: events.StartCheckpoint, target: str) -> None:
        """Hooks, enumerators and barriers, all in one mail: a split is in an enumerator's state or in that of a reader."""
        number = command.checkpoint_id
        options = replace(command.options, target=target)
        self._started[number] = StartedCheckpoint(command.trigger_ms, options)
        try:
            hooks = self._hooks.trigger(number)
            enumerators = self._sources.snapshot()
        except SourceError as error:
            self.handle(
                events.StartFailed(number, f"the splits of '{error.source}' have no snapshot: {error.__cause__}")
            )
            return
        except FlowrunError as error:
            self.handle(events.StartFailed(number, self._reason(error)))
            return
        self._started[number] = StartedCheckpoint(command.trigger_ms, options, enumerators, hooks)
        self._tasks.trigger_checkpoint(CheckpointBarrier(number, command.trigger_ms, options))
        self.handle(events.CheckpointStarted(number))

    def _store(self, command: events.StoreCheckpoint) -> None:
        number = command.checkpoint_id
        started = self._started[number]
        state = self._state
        if self._identity.job_graph_json is None:
            # Imported here: explaining knows every operator, and it is done once a job.
            from flowrun.graph.explain import Format, render_job_graph

            shown: JsonValue = orjson.loads(render_job_graph(state.job_graph, Format.JSON))
            self._identity = replace(self._identity, job_graph_json=shown)
        held, is_held_back = self._commits.held(command.snapshots), self._commits.is_held
        metadata = assemble(state.job_graph, self._identity, started, command, held, self._clock.now_ms())

        def stored(path: str) -> None:
            if number in self._started:
                self._storing[number] = (metadata, path)
                if is_held_back:
                    self._not_noted.add(number)
            self.handle(events.CheckpointStored(number, path))

        def failed(error: Exception) -> None:
            self.handle(events.StoreFailed(number, self._reason(error)))

        def finish() -> str:
            path = state.storage.finish(started.options.target, metadata)
            if started.options.stop and metadata.kind is CheckpointKind.SAVEPOINT:
                # Before anything is committed: from then on older checkpoints would write it twice.
                state.storage.note_stop(number, path)
            if not is_held_back and (metadata.kind is CheckpointKind.CHECKPOINT or started.options.stop):
                state.storage.note_commits(logged_commits(metadata))
            self._exists.add(number)
            return path

        self._io.submit(finish, stored, failed)

    def _complete(self, command: events.CompleteCheckpoint) -> None:
        number = command.checkpoint_id
        started = self._started.pop(number)
        metadata, path = self._storing.pop(number)
        is_noted = number not in self._not_noted
        self._not_noted.discard(number)
        _log.info(
            "%s %d completed after %d ms: %d bytes of state, %d written, in %s",
            started.options.kind.value,
            number,
            metadata.completed_ms - metadata.triggered_ms,
            metadata.state_bytes,
            metadata.written_bytes,
            path,
        )
        if command.options.stop:
            self._listener.stopped_at(path)
        # A job without checkpoints and without end shows what it has written all along: a savepoint changes nothing about that.
        shows = self._state.job_graph.settings.unbounded and not self._state.takes_checkpoints
        held = pending_commits(metadata)
        if not (command.is_restored_from or shows):
            self._commits.protect(held)
            return
        self.restore_point = self._state.restore_point(metadata, path)
        self._listener.checkpoint_completed()
        if self._state.takes_checkpoints:
            self._retain(command.retained)
        if self._commits.is_held:
            self._commits.hold_back(number, held)
            self._held_back = (number, held)
            if command.options.stop:  # the user wants the job as it is now
                self.release()
            return
        self._announce(number, held, None if is_noted else metadata)

    def release(self) -> None:
        """Hold back nothing any more, if commits were held back: subtasks and committers are told of the last checkpoint."""
        try:
            self._commits.accept()
        except Exception as error:
            self._listener.broke(error)
            return
        if self._held_back is not None:
            (number, held), self._held_back = self._held_back, None
            self._announce(number, held)

    def _announce(
        self, number: int, held: Mapping[str, Sequence[Committable]], to_note: CheckpointMetadata | None = None
    ) -> None:
        """A checkpoint counts: subtasks, hooks and committers are told."""
        self._tasks.complete_checkpoint(number)
        try:
            if to_note is not None:
                self._state.storage.note_commits(logged_commits(to_note))
            self._hooks.complete(number)
            self._commits.checkpoint_completed(held)
        except Exception as error:
            self._listener.broke(error)

    def _retain(self, retained: tuple[int, ...]) -> None:
        self._io.submit(
            lambda: self._forget_all_but(retained), _nothing, lambda error: _clean_up_failed("older ones", error)
        )

    def _forget_all_but(self, retained: tuple[int, ...]) -> None:
        """On the I/O thread: a checkpoint may exist there of which the coordinator has not heard yet; it is newer than all `retained`."""
        started = tuple(
            self._started
        )  # before what is retained: who leaves the one without having been given up is in the other
        self._state.storage.retain(sorted({*retained, *started, *self._coordinator.retained}))

    def _abort(self, command: events.AbortCheckpoint) -> None:
        number = command.checkpoint_id
        _log.info("checkpoint %d will not be completed: %s", number, command.reason)
        self._beginning.discard(number)
        self._storing.pop(number, None)
        started = self._started.pop(number, None)
        if started is None:
            return  # no subtask has heard of it; if its folder is being made, that is discarded afterwards
        self._given_up[number] = started.options.target
        if len(self._given_up) > _REMEMBERED:
            del self._given_up[min(self._given_up)]
        self._tasks.abort_checkpoint(number)
        try:
            self._hooks.abort(number)
        except Exception as error:
            self._listener.broke(error)
        self._discard(number, started.options.target, (f for s in command.snapshots for f in s.files))

    def _discard_late(self, number: int, snapshot: SubtaskSnapshot) -> None:
        # Of a completed checkpoint nothing is deleted here: retention finds what nobody names.
        target = self._given_up.get(number)
        if target is not None:
            self._discard(number, target, snapshot.files)

    def _discard(self, number: int, target: str, files: Iterable[StateFile]) -> None:
        listed, retained = tuple(files), self._coordinator.retained

        def discard() -> None:
            if number in self._exists:  # it was given up while it was stored, and nobody was told of it
                self._state.storage.note_discarded(number)
                self._forget_all_but(retained)
            else:
                self._state.storage.discard(target, listed)

        self._io.submit(discard, _nothing, lambda error: _clean_up_failed(f"checkpoint {number}", error))

    # Failures.

    def _reason(self, error: Exception) -> str:
        if isinstance(error, FlowrunError):
            self._hint = (error.message, error.hint)
            return error.message
        return f"{type(error).__name__}: {error}"

    def _hint_of(self, reason: str | None) -> str | None:
        if reason is None or self._hint is None or self._hint[0] not in reason:
            return None
        return self._hint[1]


def _nothing(result: object) -> None:
    """What came of it does not matter."""


def _clean_up_failed(what: str, error: Exception) -> None:
    """Files that could not be deleted do no harm: the next owner of the folder tries again."""
    _log.warning("the files of %s could not be deleted: %s", what, error)
