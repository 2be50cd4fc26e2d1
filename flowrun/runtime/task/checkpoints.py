"""A subtask between its input, its snapshots and the job master: what barriers and mails lead to, and stopping at a barrier."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointBarrier
from flowrun.errors import StateError
from flowrun.runtime.network.barriers import TakeSnapshot
from flowrun.runtime.network.subpartition import InFlightElement
from flowrun.runtime.task.input import TaskInput
from flowrun.runtime.task.network_input import NetworkInput
from flowrun.runtime.task.snapshots import SubtaskSnapshots
from flowrun.runtime.task.time_service import MailboxTimeService


class TaskCheckpoints:
    """Carries out what the barrier handler and the job master want. All calls from the subtask's thread.

    A barrier that stops the job is the last thing that the subtask processes, unless its checkpoint is aborted. While it waits,
    mails run, but neither timers nor other work of operators: nothing may happen to them that is not in the snapshot.

    Args:
        name: of the subtask.
        snapshots: takes and writes them.
        time_service: of the subtask.
        clock: of the process.
        finish_operators: called when a barrier drains: all inputs have ended.
    """

    def __init__(
        self,
        name: str,
        snapshots: SubtaskSnapshots,
        time_service: MailboxTimeService,
        clock: Clock,
        finish_operators: Callable[[], None],
    ) -> None:
        self._name = name
        self._snapshots = snapshots
        self._time_service = time_service
        self._clock = clock
        self._finish_operators = finish_operators
        self._input: TaskInput | None = None
        self._network: NetworkInput | None = None
        self._stopped_at: int | None = None
        self._drained = False
        self._ended = False
        self._held: list[Callable[[], None]] = []
        self.last_taken = 0
        """Number of the last snapshot that was taken; 0: none was."""
        self.may_end = False
        """The checkpoint with which the subtask was stopped exists."""

    def connect(self, task_input: TaskInput) -> None:
        """Set the input; before anything else."""
        self._input = task_input
        self._network = task_input if isinstance(task_input, NetworkInput) else None

    @property
    def is_stopped(self) -> bool:
        """Whether the subtask waits at a barrier that stops the job: it must not read, nor poll its source."""
        return self._stopped_at is not None

    @property
    def is_idle(self) -> bool:
        """Whether no snapshot is under way."""
        return self._snapshots.is_idle

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """Take a snapshot of a source now. One that is stopped takes none."""
        if not self.is_stopped:
            self.take(TakeSnapshot(barrier, frozenset(), self._clock.monotonic_ns()))

    def complete(self, checkpoint_id: int) -> None:
        """A checkpoint exists."""
        self._snapshots.complete(checkpoint_id)
        self.may_end = self.may_end or self._stopped_at == checkpoint_id

    def abort(self, checkpoint_id: int) -> None:
        """A checkpoint will never exist.

        Raises:
            StateError: the subtask was stopped with it, and had drained its operators: they cannot go on.
        """
        if self._network is not None:
            self._network.abort_checkpoint(checkpoint_id)
        self._snapshots.abort(checkpoint_id)
        if self._stopped_at != checkpoint_id:
            return
        if self._drained:
            raise StateError(
                f"checkpoint {checkpoint_id}, with which the job was to stop, was aborted after {self._name} had ended event time "
                "for it: it cannot go on from there",
                hint="resume from the last completed checkpoint",
            )
        self._stopped_at = None
        self._time_service.resume()
        held, self._held = self._held, []
        for work in held:
            work()

    def end(self) -> None:
        """All input was processed: operators do nothing by themselves any more, but are told of checkpoints until they are closed."""
        self._ended = True
        self._time_service.suspend()

    def run_or_hold(self, work: Callable[[], None]) -> None:
        """Do an operator's own work, now or when the subtask goes on."""
        if self._ended:
            return
        if self.is_stopped:
            self._held.append(work)
        else:
            work()

    def close(self) -> None:
        """Give up what is under way. Idempotent."""
        self._snapshots.close()

    # ---- what the barrier handler wants

    def take(self, action: TakeSnapshot) -> None:
        """Take a snapshot; stop behind it if the barrier says so."""
        options = action.barrier.options
        assert self._input is not None
        self.last_taken = action.barrier.checkpoint_id
        if options.stop and options.drain:
            self._input.end_event_time()
            self._finish_operators()
            self._drained = True
        states = () if self._network is None else self._network.channel_states()
        self._snapshots.take(action, states, finished=self._drained)
        if options.stop:
            # If the snapshot was declined, the checkpoint is aborted: wait for that.
            self._stopped_at = action.barrier.checkpoint_id
            self._time_service.suspend()

    def record(self, checkpoint_id: int, channel: int, element: InFlightElement) -> None:
        """An element of a recorded channel."""
        self._snapshots.record(checkpoint_id, channel, element)

    def stop_recording(self, checkpoint_id: int, channel: int) -> None:
        """A recorded channel is done."""
        self._snapshots.stop_recording(checkpoint_id, channel)

    def give_up(self, checkpoint_id: int, reason: str | None) -> None:
        """No snapshot of this checkpoint."""
        self._snapshots.give_up(checkpoint_id, reason)

    def wake_at(self, checkpoint_id: int, time_ms: int) -> None:
        """Go on unaligned at a time."""
        network = self._network
        assert network is not None
        self._time_service.register(time_ms, lambda _: network.alignment_timed_out(checkpoint_id))
