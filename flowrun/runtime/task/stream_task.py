"""A subtask: one thread, one mailbox, one operator chain.

Life: create → setup → initialize state → open (tail to head) → run → finish (head to tail) → close. The thread does everything; other
threads only put letters. `cancel` wakes every wait of the runtime: for input, for buffers and in `pause`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from flowrun.api.coordination import CommittingSink, CoordinatedSource
from flowrun.api.operator import InputStatus
from flowrun.api.sink import Committable
from flowrun.api.source import Split
from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointBarrier, LatencyMarker
from flowrun.errors import InternalError, JobCancelledError
from flowrun.graph.job_graph import ChainedOperator
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.jobmaster.execution import ExecutionState
from flowrun.runtime.messages import (
    CommittablesReport,
    JobMasterGateway,
    SplitRequest,
    TaskDeployment,
    TaskFailure,
    TaskUpdate,
)
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.network.barriers import BarrierTracker
from flowrun.runtime.network.gate import InputGate
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.selectors import create_selector
from flowrun.runtime.network.writer import RecordWriter
from flowrun.runtime.task.chain import ChainEnvironment, OperatorChain, OperatorFailure
from flowrun.runtime.task.input import NetworkInput, SourceInput, TaskInput
from flowrun.runtime.task.mailbox import Mailbox, Priority
from flowrun.runtime.task.timers import MailboxTimeService, TimerThread


class StreamTask:
    """One execution of one subtask.

    Args:
        deployment: what to run.
        partitions: in the order of `deployment.vertex.partitions`; the task finishes or releases them.
        gates: one a logical input; the task releases them.
        job_master: is told of states, split requests and committables.
        timers: of the process.
        clock: of the process.
        metrics: of the job.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        partitions: Sequence[ResultPartition],
        gates: Sequence[InputGate],
        *,
        job_master: JobMasterGateway,
        timers: TimerThread,
        clock: Clock,
        metrics: MetricRegistry,
    ) -> None:
        self.deployment = deployment
        self.vertex = deployment.vertex
        self._partitions = tuple(partitions)
        self._gates = tuple(gates)
        self._job_master = job_master
        self._clock = clock
        self._mailbox = Mailbox()
        self._cancelled = False
        self._finishing = False
        self._cancel_condition = threading.Condition()
        self._metrics = metrics.group(self.vertex.id.vertex_id, str(self.vertex.subtask))
        self.time = metrics.account_time(clock, self.vertex.id.vertex_id, str(self.vertex.subtask))
        self._time_service = MailboxTimeService(timers, self._mailbox)
        records_out, bytes_out = self._metrics.counter("records_out"), self._metrics.counter("bytes_out")
        writers = []
        for partition, planned, groups in zip(
            partitions, self.vertex.partitions, deployment.consumer_max_parallelism, strict=True
        ):
            partition.attach(self.time, bytes_out)
            selector = create_selector(planned.partitioner, planned.subpartitions, self.vertex.subtask, groups)
            writers.append(RecordWriter(selector, partition, records_out))
        environment = ChainEnvironment(
            subtask=self.vertex.subtask,
            clock=clock,
            processing_time=self._time_service,
            metrics=metrics,
            execute=self._execute,
            pause=self._pause,
            job_id=deployment.job_id,
            settings=deployment.settings,
        )
        self._chain = OperatorChain(self.vertex.job_vertex, writers, environment)
        self._input: TaskInput | None = None
        self.thread = threading.Thread(target=self.run, name=self.vertex.name, daemon=True)

    def run(self) -> None:
        """Live from beginning to end on the calling thread; tells the job master of every state, the last one after all is closed."""
        failure: BaseException | None = None
        try:
            self._tell(ExecutionState.INITIALIZING)
            self._start()
            self._tell(ExecutionState.RUNNING)
            self._loop()
            self._finish()
        except BaseException as error:  # told to the job master here and below, never dropped
            failure = error
            if not isinstance(error, JobCancelledError):
                # At once, so that the other subtasks end while this one closes.
                self._tell(ExecutionState.CANCELING, self._task_failure(error))
        self._tell_end(failure, self._clean_up(release_partitions=failure is not None))

    def cancel(self) -> None:
        """End as soon as possible. Any thread; idempotent."""
        self._cancelled = True
        self._mailbox.resume()
        for partition in self._partitions:
            partition.cancel()
        with self._cancel_condition:
            self._cancel_condition.notify_all()

    def stop(self, drain: bool) -> None:
        """End the input early, if the task is a source. Any thread."""
        self._mailbox.put(lambda: self._input.stop(drain) if self._input is not None else None, Priority.URGENT)

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Hand splits to the source. Any thread."""
        self._letter_to_source(lambda source: source.add_splits(splits))

    def notify_no_more_splits(self) -> None:
        """Tell the source that no split will come. Any thread."""
        self._letter_to_source(lambda source: source.notify_no_more_splits())

    def _start(self) -> None:
        chain = self._chain
        chain.build()
        for position, chained in enumerate(self.vertex.job_vertex.operators):
            self._connect(position, chained)
        self._check_cancelled()
        chain.initialize_state()
        chain.open()
        self._check_cancelled()
        if self._gates:
            tracker = BarrierTracker(sum(gate.channels for gate in self._gates))
            self._input = NetworkInput(chain, self._gates, tracker, self._on_barrier, self._metrics)
            for gate in self._gates:
                gate.set_listener(self._mailbox.resume)
                gate.request_partitions()
        else:
            self._input = SourceInput(chain, self._mailbox.resume)
            interval = self.deployment.settings.latency_interval_ms
            if interval:
                self._mark_latency(interval)

    def _connect(self, position: int, chained: ChainedOperator) -> None:
        operator = self._chain.operators[position]
        if chained.source is not None:
            source = self._chain.source
            if source is None:
                raise InternalError(
                    f"'{chained.name}' carries a source, but its operator takes no splits (CoordinatedSource)"
                )
            source.connect(lambda: self._job_master.request_split(SplitRequest(self.vertex.id, self._attempt)))
        elif chained.sink is not None and isinstance(operator, CommittingSink):
            operator.connect(lambda committables: self._submit(chained.operator_id, committables))

    def _submit(self, operator_id: str, committables: Sequence[Committable]) -> None:
        if committables:
            self._job_master.report_committables(
                CommittablesReport(self.vertex.id, self._attempt, operator_id, tuple(committables), self._finishing)
            )

    def _loop(self) -> None:
        """Letters first, then the default action; wait when that has nothing to do or nowhere to write."""
        mailbox, time, task_input = self._mailbox, self.time, self._input
        assert task_input is not None
        while True:
            # No more letters than there are now: one that puts itself back must not keep input waiting for ever.
            for _ in range(len(mailbox)):
                letter = mailbox.take_nowait()
                if letter is not None:
                    letter()
            self._check_cancelled()
            blocked = next((p for p in self._partitions if not p.is_available), None)
            if blocked is not None:
                if blocked.listen(mailbox.resume):
                    time.begin(back_pressured=True)
                    mailbox.wait()
                    time.end()
                continue
            status = task_input.process_next()
            if status is InputStatus.NOTHING_AVAILABLE:
                time.begin(back_pressured=False)
                mailbox.wait()
                time.end()
            elif status is InputStatus.END_OF_INPUT:
                return

    def _finish(self) -> None:
        self._finishing = True
        self._check_cancelled()
        self._chain.finish()
        self._check_cancelled()
        for partition in self._partitions:
            partition.finish()

    def _clean_up(self, *, release_partitions: bool) -> list[OperatorFailure]:
        """Close and free everything; gives what operators raised meanwhile."""
        self._time_service.close()
        problems = self._chain.close()
        for gate in self._gates:
            gate.release()
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
    def _attempt(self) -> str:
        return self.deployment.attempt_id

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise JobCancelledError(f"{self.vertex.name} was cancelled")

    def _execute(self, letter: Callable[[], None]) -> None:
        self._mailbox.put(letter)

    def _pause(self, ms: float) -> None:
        end_ns = self._clock.monotonic_ns() + int(ms * 1_000_000)
        with self._cancel_condition:
            self._clock.wait(self._cancel_condition, 0)  # a manual clock knows this waiter from now on
            while not self._cancelled:
                left_ns = end_ns - self._clock.monotonic_ns()
                if left_ns <= 0:
                    return
                self._clock.wait(self._cancel_condition, left_ns / 1_000_000)
        self._check_cancelled()

    def _letter_to_source(self, call: Callable[[CoordinatedSource], None]) -> None:
        def letter() -> None:
            source = self._chain.source
            assert source is not None
            self._chain.call(0, lambda: call(source))

        self._mailbox.put(letter)
        self._mailbox.resume()

    def _mark_latency(self, interval_ms: int) -> None:
        """Send a probe, and again every interval."""
        now = self._clock.now_ms()
        chained = self.vertex.job_vertex.operators[0]
        self._chain.head_output.emit_latency_marker(LatencyMarker(now, chained.name, self.vertex.subtask))
        self._time_service.register(now + interval_ms, lambda _: self._mark_latency(interval_ms))

    def _on_barrier(self, barrier: CheckpointBarrier) -> None:
        self._chain.broadcast_barrier(barrier)
