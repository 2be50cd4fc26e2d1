"""A subtask: one thread, one mailbox, one operator chain.

Life: create → setup → initialize state → open (tail to head) → process what was in flight → run → finish (head to tail) → close. The
thread does everything but writing snapshots; other threads only put mails. `cancel` wakes every wait of the runtime: for input,
for buffers, for uploads and in `pause`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property, partial
from pathlib import Path

from flowrun.api.coordination import CommittingSink, CoordinatedSource
from flowrun.api.input_selection import InputSelectable
from flowrun.api.operator import InputStatus
from flowrun.api.sink import Committable
from flowrun.api.source import Split
from flowrun.api.state import OperatorSnapshot
from flowrun.core.clock import Clock
from flowrun.core.elements import MAX_WATERMARK, CheckpointBarrier, LatencyMarker
from flowrun.core.log_context import LogContext, log_for_subtask
from flowrun.core.provided import provides
from flowrun.core.record import record
from flowrun.errors import InternalError, JobCancelledError, UnsupportedPlanError
from flowrun.graph.execution_graph import ExecutionVertex
from flowrun.graph.job_graph import ChainedOperator, JobSettings
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.mailbox import Mailbox, Priority
from flowrun.runtime.messages import (
    LOCAL_WORKER,
    CommittablesReport,
    JobMasterGateway,
    RestoredChannel,
    SplitRequest,
    TaskDeployment,
    TaskFailure,
    TaskUpdate,
)
from flowrun.runtime.metrics import ScopedMetrics, TimeAccount
from flowrun.runtime.network.barrier_handlers import MixedBarrierHandler
from flowrun.runtime.network.gate import InputGate
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.task.cancellation import Cancellation
from flowrun.runtime.task.chain import OperatorChain, OperatorFailure
from flowrun.runtime.task.checkpoints import TaskCheckpoints
from flowrun.runtime.task.input import FinishedInput, SourceInput, TaskInput
from flowrun.runtime.task.network_input import FinishedHead, NetworkInput
from flowrun.runtime.task.replay import replay_in_flight
from flowrun.runtime.task.restore import read_channels, read_operator
from flowrun.runtime.task.time_service import MailboxTimeService
from flowrun.runtime.watchdog.board import SubtaskActivity
from flowrun.state.key_groups import key_group_range
from flowrun.state.storage.contract import SnapshotStorage


class Step(Enum):
    """What follows a step of a subtask."""

    MORE = 0
    """The next one."""
    WAIT = 1
    """Nothing, until its mailbox is resumed or has a mail."""
    WAIT_FOR_ROOM = 2
    """The same: it has rows, and nowhere to put them."""
    OVER = 3
    """Nothing: all is closed, and the job master knows."""


@record
class TaskParts:
    """What a subtask is made of; see `flowrun.runtime.task.create_task`.

    Attributes:
        vertex: the subtask in the execution graph.
        settings: of the job.
        mailbox: everything that the subtask does beside processing input comes through it.
        cancellation: ends its waits.
        chain: its operators, not built yet.
        checkpoints: its snapshots.
        time_service: its processing time.
        partitions: in the order of the vertex's partitions; the task finishes or releases them.
        gates: one a logical input; the task releases them.
        metrics: of the subtask.
        job_name: for its log.
        time: the account of how it spends its time.
        activity: where it notes what it is doing.
    """

    vertex: ExecutionVertex
    settings: JobSettings
    mailbox: Mailbox
    cancellation: Cancellation
    chain: OperatorChain
    checkpoints: TaskCheckpoints
    time_service: MailboxTimeService
    partitions: tuple[ResultPartition, ...]
    gates: tuple[InputGate, ...]
    metrics: ScopedMetrics
    job_name: str
    time: TimeAccount
    activity: SubtaskActivity


class StreamTask:
    """One execution of one subtask.

    Args:
        deployment: what to run.
        parts: what it is made of.
        job_master: is told of states, split requests and committables.
        clock: of the process.
        storage: where state is read that the subtask restores from; None if the job restores none.
        spill_folder: gives where what does not fit into memory may be written; None if inputs are not sorted.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        parts: TaskParts,
        *,
        job_master: JobMasterGateway,
        clock: Clock,
        storage: SnapshotStorage | None,
        spill_folder: Callable[[], Path] | None = None,
    ) -> None:
        self.deployment = deployment
        self.vertex = parts.vertex
        self._settings = parts.settings
        self.time = parts.time
        self._mailbox = parts.mailbox
        self._cancellation = parts.cancellation
        self._chain = parts.chain
        self._checkpoints = parts.checkpoints
        self._time_service = parts.time_service
        self._partitions = parts.partitions
        self._gates = parts.gates
        self._metrics = parts.metrics
        self._activity = parts.activity
        self._job_master = job_master
        self._clock = clock
        self._storage = storage
        self._spill_folder = spill_folder
        self._was_finished = deployment.restored is not None and deployment.restored.finished
        self._ended = False
        self._has_read_all = False
        self._unread = 0  # partitions whose end is not known to all who read them
        self._input: TaskInput | None = None
        self._log_context = LogContext(
            deployment.job_id,
            parts.job_name,
            self.vertex.job_vertex.name,
            self.vertex.subtask,
            self.vertex.job_vertex.parallelism,
            deployment.attempt_id,
            deployment.worker if deployment.worker != LOCAL_WORKER else None,
        )
        self._do_next: Callable[[], Step] = self._begin

    @cached_property
    def thread(self) -> threading.Thread:
        """A thread of its own, for who wants to run it so."""
        return threading.Thread(target=self.run, name=self.vertex.name, daemon=True)

    def run(self) -> None:
        """Live from beginning to end on the calling thread; tells the job master of every state, the last one after all is closed."""
        log_for_subtask(self._log_context)
        while (following := self.step()) is not Step.OVER:
            if following is not Step.MORE:
                self.time.begin(back_pressured=following is Step.WAIT_FOR_ROOM)
                self._mailbox.wait()
                self.time.end()

    def step(self) -> Step:
        """Begin, or do the next piece of work: the mails that are there and an element of the input. It does not wait for either.

        For who runs subtasks on a thread of its own choice, one at a time: those that wait are `is_awake` when they have something to do.
        """
        try:
            return self._do_next()
        except BaseException as error:  # told to the job master here and below, never dropped
            if not isinstance(error, JobCancelledError):
                # At once, so that the other subtasks end while this one closes.
                self._tell(ExecutionState.CANCELING, self._task_failure(error))
            return self._end(error)

    def is_awake(self) -> bool:
        """Whether there is something to do after a step that said to wait; asked once, as a wait would end once."""
        return self._mailbox.is_awake_nowait()

    @property
    def waits_for_answers(self) -> bool:
        """Whether rows are under way outside, of which nothing is known until a mail comes."""
        return not self._ended and not self._was_finished and not self._chain.is_at_rest

    def cancel(self) -> None:
        """End as soon as possible. Any thread; idempotent."""
        self._activity.cancel()
        self._cancellation.cancel()
        self._mailbox.resume()
        for partition in self._partitions:
            partition.cancel()

    def stop(self, drain: bool) -> None:
        """End the input early, if the task is a source. Any thread."""

        def mail() -> None:
            if self._input is not None and not self._ended:
                self._input.stop(drain)

        self._mailbox.put(mail, Priority.URGENT)

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Hand splits to the source. Any thread."""
        self._mail_to_source(lambda source: source.add_splits(splits))

    def notify_no_more_splits(self) -> None:
        """Tell the source that no split will come. Any thread."""
        self._mail_to_source(lambda source: source.notify_no_more_splits())

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Take a snapshot and send the barrier, if the task is a source; ordered with `add_splits`. Any thread."""
        self._mailbox.put(lambda: self._trigger(barrier))

    def complete_checkpoint(self, checkpoint_id: int) -> None:
        """The checkpoint exists; a task that stopped at its barrier ends. Any thread."""
        self._mailbox.put(lambda: self._checkpoints.complete(checkpoint_id))

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        """The checkpoint will never exist; a task that stopped at its barrier goes on. Any thread."""
        self._mailbox.put(lambda: self._checkpoints.abort(checkpoint_id))

    def _begin(self) -> Step:
        self._activity.begin()
        self._tell(ExecutionState.INITIALIZING)
        self._start()
        self._tell(ExecutionState.RUNNING)
        self._do_next = self._work
        return Step.MORE

    def _start(self) -> None:
        chain, restored = self._chain, self.deployment.restored
        if not self._was_finished:
            chain.build()
            for position, chained in enumerate(self.vertex.job_vertex.operators):
                self._connect(position, chained)
            self._cancellation.check()
            chain.initialize_state(None if restored is None else self._restore)
            chain.open(self._replay_inside_chain)
            self._cancellation.check()
        self._input = self._create_input()
        self._checkpoints.connect(self._input)
        for gate in self._gates:
            gate.set_listener(self._mailbox.resume)
            gate.request_partitions()

    def _in_flight_to(self, position: int) -> list[RestoredChannel]:
        restored = self.deployment.restored
        channels = [] if restored is None else [c for c in restored.in_flight if c.operator == position]
        return read_channels(channels, "" if restored is None else restored.root, self._storage)

    def _replay_inside_chain(self, position: int) -> None:
        """Process what was in flight to an operator that was the head of a task and is no longer, before those ahead of it emit."""
        channels = self._in_flight_to(position) if position else []
        if channels:
            entry = self._chain.entry(position)
            (reached,) = replay_in_flight(channels, self.vertex, entry, self._cancellation.check)
            entry.start_at(reached)

    def _create_input(self) -> TaskInput:
        chain = self._chain
        if self._gates:
            handler = MixedBarrierHandler(sum(gate.channels for gate in self._gates), self._clock)
            if self.vertex.job_vertex.operators[0].sorted_inputs:
                return self._sorted_input(handler)
            head = FinishedHead() if self._was_finished else chain
            selectable, name = self._selectable(), chain.name_of(0)
            network = NetworkInput(head, self._gates, handler, self._checkpoints, self._metrics, selectable, name)
            if channels := self._in_flight_to(0):
                network.start_at(replay_in_flight(channels, self.vertex, head, self._cancellation.check))
            return network
        if self._was_finished:
            return FinishedInput()
        source = SourceInput(chain, self._mailbox.resume)
        interval = self._settings.latency_interval_ms
        if interval and not self._settings.batch_mode:  # between stages rows wait, whatever the operators do
            self._mark_latency(interval)
        return source

    def _sorted_input(self, handler: MixedBarrierHandler) -> TaskInput:
        """In batch mode: rows come key after key."""
        # Imported here: sorting is for batch mode alone.
        from flowrun.runtime.task.sorted_input import GatheringHead, SortedInput

        keys = self.vertex.job_vertex.operators[0].state_keys
        if keys is None or self._spill_folder is None:
            raise InternalError(f"{self.vertex.name} has nothing to sort its inputs by, or nowhere to do it")
        batch_rows = self._settings.batch_rows
        gathering = GatheringHead(self._chain, keys, self._spill_folder, batch_rows)
        return SortedInput(gathering, NetworkInput(gathering, self._gates, handler, self._checkpoints, self._metrics))

    def _selectable(self) -> InputSelectable | None:
        """The head, if it selects its inputs; see `flowrun.api.input_selection`.

        Raises:
            UnsupportedPlanError: it does, and the job takes checkpoints.
        """
        head: object = None if self._was_finished else self._chain.operators[0]
        if not provides(head, InputSelectable):
            return None
        if self._settings.checkpoint is not None:
            raise UnsupportedPlanError(
                f"'{self._chain.name_of(0)}' selects its inputs (InputSelectable), and the job takes checkpoints: their barriers would wait"
                " behind the rows of an input that is not selected",
                hint="run the job without checkpoints, or let the operator read all inputs and keep what comes too early",
            )
        return head

    def _restore(self, position: int) -> OperatorSnapshot | None:
        restored, vertex = self.deployment.restored, self.vertex.job_vertex
        assert restored is not None
        groups = key_group_range(self.vertex.subtask, vertex.parallelism, vertex.max_parallelism)
        return read_operator(restored, vertex.operators[position], groups, self._storage)

    def _connect(self, position: int, chained: ChainedOperator) -> None:
        operator = self._chain.operators[position]
        if chained.source is not None:
            source = self._chain.source
            if source is None:
                raise InternalError(
                    f"'{chained.name}' carries a source, but its operator takes no splits (CoordinatedSource)"
                )
            source.connect(lambda: self._job_master.request_split(SplitRequest(self.vertex.id, self._attempt)))
        elif chained.sink is not None and provides(operator, CommittingSink):
            operator.connect(lambda committables: self._submit(chained.operator_id, committables))

    def _submit(self, operator_id: str, committables: Sequence[Committable]) -> None:
        if committables:
            restored = self.deployment.restored
            last = max(self._checkpoints.last_taken, 0 if restored is None else restored.checkpoint_id)
            self._job_master.report_committables(
                CommittablesReport(
                    self.vertex.id, self._attempt, operator_id, tuple(committables), self._chain.is_finishing, last
                )
            )

    def _work(self) -> Step:
        """Mails first, then an element of the input, if there is one and room for what comes of it."""
        checkpoints, task_input = self._checkpoints, self._input
        assert task_input is not None
        self._run_letters()
        if checkpoints.is_stopped:
            return self._finish() if checkpoints.may_end else Step.WAIT
        for partition in self._partitions:
            if not partition.is_available:
                return Step.WAIT_FOR_ROOM if partition.listen(self._mailbox.resume) else Step.MORE
        if not (self._chain.accepts_rows or task_input.has_urgent):
            return Step.WAIT_FOR_ROOM
        status = InputStatus.END_OF_INPUT
        if not self._has_read_all:
            self._activity.call()
            status = task_input.process_next()
            self._activity.rest()
            self._has_read_all = status is InputStatus.END_OF_INPUT
        if self._has_read_all and self._chain.is_at_rest:
            return self._finish()
        return Step.MORE if status is InputStatus.MORE_AVAILABLE else Step.WAIT

    def _run_letters(self) -> None:
        # No more mails than there are now: one that puts itself back must not keep input waiting for ever.
        for _ in range(len(self._mailbox)):
            mail = self._mailbox.take_nowait()
            if mail is not None:
                mail()
        self._cancellation.check()

    def _finish(self) -> Step:
        """End well: operators too, unless a snapshot holds what they remember, or they were finished before that."""
        self._ended = True
        self._checkpoints.end()
        if not self._checkpoints.is_stopped:
            self._cancellation.check()
            self._chain.finish()
            if self._was_finished:
                for partition in self._partitions:
                    partition.broadcast_event(MAX_WATERMARK)
        self._cancellation.check()
        for partition in self._partitions:
            partition.finish()
        self._do_next = self._wait_for_snapshots
        return Step.MORE

    def _wait_for_snapshots(self) -> Step:
        """What was acknowledged must be known before the end is: the coordinator would take the checkpoint to need nothing of this task."""
        self._run_letters()
        if not self._checkpoints.is_idle:
            return Step.WAIT
        unread = self._partitions if self.deployment.restored is None else ()  # else who reads may have ended before
        self._unread = len(unread)
        for partition in unread:
            partition.call_when_read(partial(self._mailbox.put, self._note_read))
        self._do_next = self._wait_for_readers
        return Step.MORE

    def _note_read(self) -> None:
        self._unread -= 1

    def _wait_for_readers(self) -> Step:
        """Who reads must know that a subtask without rows has ended before others begin: until then it holds event time back."""
        self._run_letters()
        return Step.WAIT if self._unread else self._end(None)

    def _end(self, failure: BaseException | None) -> Step:
        problems = self._clean_up(release_partitions=failure is not None)
        self._activity.end()
        self._tell_end(failure, problems)
        return Step.OVER

    def _clean_up(self, *, release_partitions: bool) -> list[OperatorFailure]:
        """Close and free everything; gives what operators raised meanwhile."""
        self._time_service.close()
        self._checkpoints.close()
        problems = self._chain.close()
        for gate in self._gates:
            gate.release()
        if self._input is not None:
            self._input.release()
        if release_partitions:
            for partition in self._partitions:
                partition.release()
        self._mailbox.close()
        self.time.stop()
        return problems

    def _tell(self, state: ExecutionState, failure: TaskFailure | None = None) -> None:
        self._job_master.update_task(TaskUpdate(self.vertex.id, self._attempt, state, failure))

    def _tell_end(self, error: BaseException | None, problems: list[OperatorFailure]) -> None:
        if error is None and not problems:
            self._tell(ExecutionState.FINISHED)
            return
        if isinstance(error, JobCancelledError):
            error = None
            if not problems:
                self._tell(ExecutionState.CANCELED)
                return
        if error is None:
            first = problems.pop(0)
            failure = TaskFailure(first.error, first.operator, first.phase)
        else:
            failure = self._task_failure(error)
        secondary = tuple(f"closing '{p.operator}' failed, too: {describe_error(p.error)}" for p in problems)
        self._tell(ExecutionState.FAILED, replace(failure, secondary=secondary))

    def _task_failure(self, error: BaseException) -> TaskFailure:
        noted = self._chain.failure
        if noted is not None and noted.error is error:
            return TaskFailure(error, noted.operator, noted.phase)
        return TaskFailure(error)

    @property
    def present_operator(self) -> str | None:
        """The operator that is at work, for messages; None: none. Any thread."""
        position = self._activity.position
        return None if position is None else self._chain.name_of(position)

    def give_up(self) -> None:
        """It has not ended in the time allowed, and that is known. Any thread."""
        self._activity.give_up()

    @property
    def _attempt(self) -> str:
        return self.deployment.attempt_id

    def _trigger(self, barrier: CheckpointBarrier) -> None:
        if self._gates:
            raise InternalError(f"{self.vertex.name} has inputs: its checkpoints begin with their barriers")
        if not self._ended:  # the end counts as the barrier
            self._checkpoints.trigger(barrier)

    def _mail_to_source(self, call: Callable[[CoordinatedSource], None]) -> None:
        def mail() -> None:
            source = self._chain.source
            # One that had ended before the restored checkpoint has no operator.
            if source is not None and not self._ended:
                self._chain.call(0, lambda: call(source))

        self._mailbox.put(mail)
        self._mailbox.resume()

    def _mark_latency(self, interval_ms: int) -> None:
        """Send a probe, and again every interval."""
        now = self._clock.now_ms()
        chained = self.vertex.job_vertex.operators[0]
        self._chain.head_output.emit_latency_marker(LatencyMarker(now, chained.name, self.vertex.subtask))
        self._time_service.register(now + interval_ms, lambda _: self._mark_latency(interval_ms))
