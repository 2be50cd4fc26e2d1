"""A running job whose parallelism changes: one job for whoever watches and controls it, several executions one after the other.

    execution at p ──checkpoint, and the end──▶ execution at q, from that checkpoint ──▶ …

An execution is a job master with its job graph, which does not change. To rescale, the job is compiled anew, the present execution ends,
and the next one restores from where it ended:

- An execution that runs, or is about to, is stopped with a checkpoint, as `flowrun stop` does: nothing is read twice.
- One that waits for slots, as it lost workers, or that fails meanwhile is cancelled: its last completed checkpoint counts.

What can be checked is checked before anything ends. If the next execution does not come up, the one before takes its place again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.clock import Clock, SystemClock
from flowrun.core.record import record
from flowrun.errors import FlowrunError, JobFailedError, StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.earlier_executions import EarlierExecutions
from flowrun.runners.embedded import JobStateOptions, LocalJob
from flowrun.runners.job_block import JobBlock
from flowrun.runners.snapshot_requests import RequestedSnapshot
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.jobmaster.snapshot_ticket import SnapshotTicket
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.state.checkpoints import PipelineText

if TYPE_CHECKING:
    from flowrun.runtime.job_details import JobDetails

MOST_RESTARTS = 3
"""An execution that failed so often before all its subtasks ran will not come up."""
SLOTS_PATIENCE_MS = 30_000
"""How long an execution that has just begun may wait for slots that were there before."""
_SLICE_MS = 50.0
_UP = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})

_log = logging.getLogger(__name__)


@record(eq=False)
class JobVersion:
    """A job at one parallelism.

    Attributes:
        parallelism: of operators that do not set their own.
        job_graph: to run.
        pipeline: what its checkpoints keep of its text; None: nothing.
        text: for processes that have to compile it; None: they have its job graph.
    """

    parallelism: int
    job_graph: JobGraph
    pipeline: PipelineText | None = None
    text: JobText | None = None


@record(eq=False)
class Rescaling:
    """How a job is made and started at another parallelism.

    Attributes:
        compile: gives the job at a parallelism. Raises FlowrunError.
        check: passes if there are slots for a job graph. Raises FlowrunError.
        start: starts a version from the state that the options name. Raises FlowrunError.
    """

    compile: Callable[[int], JobVersion]
    check: Callable[[JobGraph], None]
    start: Callable[[JobVersion, JobStateOptions], LocalJob]


class RescalableJob(JobBlock):
    """A job that can be rescaled. It is used like a `LocalJob`, whose contracts hold; all methods are thread-safe, and `stop`, `cancel` and
    `take_snapshot` may be called in a signal handler.

    Args:
        job: its first execution.
        version: of that execution.
        options: with which it was started.
        rescaling: how others are made; a text instead: why the job cannot be rescaled.
        clock: of waiting.
    """

    def __init__(
        self,
        job: LocalJob,
        version: JobVersion,
        options: JobStateOptions,
        rescaling: Rescaling | str,
        clock: Clock | None = None,
    ) -> None:
        self.job_id = job.job_id
        self._rescaling = rescaling
        self._clock = SystemClock() if clock is None else clock
        # Re-entrant: a signal handler may ask for something in the midst of a call of its own thread.
        self._changed = threading.Condition(threading.RLock())
        self._present = job
        self._version = version
        self._options = options
        self._began_at = job.restore_point
        self._earlier = EarlierExecutions()
        self._moving_to: int | None = None
        """The parallelism to which the job is being rescaled."""
        self._moving_from = version.parallelism
        """From which it was rescaled last."""
        self._requests: list[RequestedSnapshot] = []
        self._drain_when_moved: bool | None = None
        self._cancelled = False
        self._failure: JobFailedError | None = None

    @property
    def parallelism(self) -> int:
        """Of operators that do not set their own."""
        return self._version.parallelism

    @property
    def job_graph(self) -> JobGraph:
        """Of the present execution."""
        return self._version.job_graph

    @property
    def max_parallelism(self) -> int:
        """The highest to which the job can be rescaled: its state has so many key groups."""
        return min(vertex.max_parallelism for vertex in self._present.job_graph.vertices)

    @property
    def checkpoint_root(self) -> str | None:
        """See `LocalJob`."""
        return self._present.checkpoint_root

    def status(self) -> JobStatus:
        """What the job looks like now; figures count on over all executions."""
        with self._changed:
            present, earlier, target = self._present, self._earlier, self._moving_to
        return self._as_whole(earlier.before(present.status()), target)

    def details(self) -> JobDetails:
        """See `LocalJob`; checkpoints and failures are those of all executions, the rest is of the present one."""
        with self._changed:
            present, earlier, target = self._present, self._earlier, self._moving_to
        details = earlier.before_details(present.details())
        return replace(details, status=self._as_whole(details.status, target))

    def _as_whole(self, status: JobStatus, target: int | None) -> JobStatus:
        status = replace(status, job_id=self.job_id)
        if target is None or self._cancelled:
            return status
        waits_for = status.waits_for or f"rescaling from parallelism {self._moving_from} to {target}"
        return replace(status, state=JobState.RESTARTING, waits_for=waits_for)

    def rescale(self, parallelism: int) -> SnapshotTicket:
        """Have the job go on at another parallelism; gives the ticket at once, whose path is the checkpoint that it went on from.

        If that fails the job goes on as it was, and the ticket says why.

        Raises:
            StateError: the job cannot be rescaled now, or never.
        """
        with self._changed:
            self._check_may_move(parallelism)
            self._moving_to, self._moving_from = parallelism, self._version.parallelism
            for request in self._requests:
                request.carry()
        ticket = SnapshotTicket(uuid.uuid4().hex, self._clock)
        thread = threading.Thread(
            target=self._carry_out, args=(parallelism, ticket), name="flowrun-rescale", daemon=True
        )
        thread.start()
        return ticket

    def take_snapshot(
        self, directory: str | None = None, *, savepoint: bool = True, stop: bool = False, drain: bool = False
    ) -> RequestedSnapshot:
        """See `LocalJob.take_snapshot`. One that is asked for while the job is being rescaled is taken afterwards."""
        request = RequestedSnapshot(
            lambda job: job.take_snapshot(directory, savepoint=savepoint, stop=stop, drain=drain), stops=stop
        )
        with self._changed:
            self._requests = [r for r in self._requests if not r.is_answered]
            self._requests.append(request)
            if self._moving_to is None:
                request.place(self._present)
        return request

    def sample_rows(self, exchange: str, for_ms: int) -> None:
        """See `LocalJob.sample_rows`."""
        with self._changed:
            present = self._present
        present.sample_rows(exchange, for_ms)

    def stop(self, drain: bool = False) -> None:
        """See `LocalJob.stop`."""
        with self._changed:
            if self._moving_to is not None:
                self._drain_when_moved = drain
                return
            self._present.stop(drain)

    def cancel(self) -> None:
        """See `LocalJob.cancel`."""
        with self._changed:
            self._cancelled = True
            self._present.cancel()

    def release_commits(self) -> None:
        """See `LocalJob.release_commits`."""
        with self._changed:
            self._present.release_commits()

    def fail(self, error: Exception) -> None:
        """See `LocalJob.fail`."""
        with self._changed:
            self._present.fail(error)

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        """See `LocalJob.wait`."""
        end_ns = None if timeout_ms is None else self._clock.monotonic_ns() + int(timeout_ms * 1e6)
        while True:
            with self._changed:
                while self._moving_to is not None:
                    left_ms = self._left_ms(end_ns)
                    if left_ms is not None and left_ms <= 0:
                        return None
                    self._clock.wait(self._changed, left_ms)
                present, failure = self._present, self._failure
            if failure is not None:
                raise failure
            left_ms = self._left_ms(end_ns)
            try:
                result = present.wait(_SLICE_MS if left_ms is None else max(min(left_ms, _SLICE_MS), 0))
            except JobFailedError:
                if self._is_last(present):
                    raise
                continue
            if result is not None and self._is_last(present):
                return replace(self._earlier.before_result(result), job_id=self.job_id)
            if left_ms is not None and left_ms <= _SLICE_MS:
                return None

    # ---- what the asker is told at once

    def _check_may_move(self, parallelism: int) -> None:
        if isinstance(self._rescaling, str):
            raise StateError(f"the job cannot be rescaled while it runs: {self._rescaling}", hint=_BY_HAND)
        if self._present.checkpoint_root is None:
            raise StateError(
                "the job cannot be rescaled while it runs: it takes no checkpoints",
                hint="give the pipeline settings.checkpoint.interval, or take a savepoint and resume from it with -p",
            )
        if self._moving_to is not None:
            raise StateError(f"the job is being rescaled to parallelism {self._moving_to}", hint="ask again afterwards")
        state = self._present.status().state
        if self._cancelled or state not in (JobState.CREATED, JobState.RUNNING, JobState.RESTARTING):
            raise StateError("the job is ending")
        if any(r.stops and not r.is_answered for r in self._requests):
            raise StateError("the job is being stopped")
        if parallelism == self._version.parallelism:
            raise StateError(f"the job has parallelism {parallelism} already")

    # ---- the move, on a thread of its own

    def _carry_out(self, parallelism: int, ticket: SnapshotTicket) -> None:
        assert not isinstance(self._rescaling, str)
        failure: FlowrunError | None = None
        path = ""
        try:
            path = self._move(self._rescaling, parallelism)
        except FlowrunError as error:
            failure = error
        except Exception as error:
            failure = StateError(f"the rescaling broke: {type(error).__name__}: {error}")
            _log.exception("the rescaling broke")
        with self._changed:
            self._moving_to = None
            for request in self._requests:
                request.go_on(self._present)
            if self._drain_when_moved is not None:
                self._present.stop(self._drain_when_moved)
            self._changed.notify_all()
        if failure is None:
            ticket.succeed(path)
        else:
            ticket.fail(f"the job was not rescaled to parallelism {parallelism}: {failure.message}", failure.hint)

    def _move(self, rescaling: Rescaling, parallelism: int) -> str:
        """Rescale; gives the path of the checkpoint that the job goes on from, empty if it is the beginning.

        Raises:
            FlowrunError: the job goes on as it was, or has ended.
        """
        from flowrun.runtime.checkpoint.compatibility import compare  # most jobs are never rescaled

        version = rescaling.compile(parallelism)
        rescaling.check(version.job_graph)
        present, before = self._present, self._version
        point = present.restore_point
        if point is not None:
            compare(point.metadata, version.job_graph).check(allow_non_restored_state=True)
        self._end(present)
        options = self._options_after(present, version)
        _log.info("job '%s' goes on at parallelism %d", version.job_graph.name, parallelism)
        try:
            self._switch(rescaling, version, options)
        except FlowrunError as error:
            if not self._cancelled:
                self._go_back(rescaling, before, error)
            raise
        return options.restore_from or ""

    def _end(self, present: LocalJob) -> None:
        """End the present execution such that another one can go on from it.

        Raises:
            StateError: it goes on, as it could not take a checkpoint; or the job has ended meanwhile.
            JobFailedError: it failed.
        """
        is_stopped = self._stop(present)
        if not is_stopped:
            present.cancel()
        try:
            result = present.wait()
        except JobFailedError:
            if (
                not is_stopped
            ):  # else the checkpoint holds what could not be committed, and the next execution commits it
                raise
        else:
            # The checkpoint may have been completed at the very moment in which it was given up.
            finished = result is not None and result.state is JobState.FINISHED and result.stopped_at is None
            if finished and not is_stopped:
                raise StateError("it came to its end")
        if self._cancelled:
            raise StateError("the job was cancelled")

    def _stop(self, present: LocalJob) -> bool:
        """Stop the present execution with a checkpoint; False: that will not be, as it waits for slots, or fails."""
        restarts = present.status().restarts
        ticket = present.take_snapshot(savepoint=False, stop=True)
        while not ticket.is_answered:
            if self._cancelled:
                return False
            status = present.status()
            if status.waits_for is not None or status.restarts > restarts:
                return False
            if present.wait(_SLICE_MS) is not None:
                break
        try:
            ticket.wait(_SLICE_MS)
        except StateError as error:
            status = present.status()
            if self._cancelled or status.restarts > restarts:
                return False
            reason = (
                "it came to its end" if status.state.is_terminal else f"it could not take a checkpoint: {error.message}"
            )
            raise StateError(reason, hint=error.hint) from error
        return True

    def _options_after(self, ended: LocalJob, version: JobVersion) -> JobStateOptions:
        """From where a version goes on after an execution that is over."""
        point = ended.restore_point
        if point is None or point is self._began_at:  # it completed no checkpoint: begin as it did
            return replace(self._options, pipeline=version.pipeline)
        return JobStateOptions(self._options.directory, version.pipeline, restore_from=point.folder)

    def _switch(self, rescaling: Rescaling, version: JobVersion, options: JobStateOptions) -> None:
        """Start the next execution and wait until all its subtasks run. Raises FlowrunError if they do not; it is over then."""
        ended = self._present.details()
        job = rescaling.start(version, options)
        with self._changed:
            self._earlier = self._earlier.with_execution(ended)
            self._present, self._version, self._options = job, version, options
            self._began_at = job.restore_point
            if self._cancelled:
                job.cancel()
        self._await_up(job)

    def _await_up(self, job: LocalJob) -> None:
        since_ns: int | None = None
        while True:
            result = job.wait(_SLICE_MS)
            if self._cancelled:
                raise StateError("the job was cancelled")
            status = job.status()
            if result is not None or self._is_up(status):
                return
            reason: str | None = None
            if status.restarts >= MOST_RESTARTS:
                reason = f"it failed {status.restarts} times before it ran: {status.last_failure}"
            if status.waits_for is None:
                since_ns = None
            else:
                now_ns = self._clock.monotonic_ns()
                since_ns = now_ns if since_ns is None else since_ns
                if now_ns - since_ns > SLOTS_PATIENCE_MS * 1e6:
                    reason = f"it waits for {status.waits_for}"
            if reason is not None:
                job.cancel()
                job.wait()
                raise StateError(reason)

    def _go_back(self, rescaling: Rescaling, before: JobVersion, error: FlowrunError) -> None:
        """Let the execution before take its place again, from where the job is now."""
        _log.warning("the job goes on at parallelism %d: %s", before.parallelism, error.message)
        present = self._present
        options = self._options_after(present, before)
        try:
            ended = present.details()
            job = rescaling.start(before, options)
        except FlowrunError as worse:
            place = options.restore_from
            failure = JobFailedError(
                f"the job could not be rescaled ({error.message}), nor go on as it was: {worse.message}",
                operator=None,
                subtask=None,
                hint=worse.hint if place is None else f"resume from {place}",
            )
            failure.__cause__ = worse
            with self._changed:
                self._failure = failure
            return
        with self._changed:
            self._earlier = self._earlier.with_execution(ended)
            self._present, self._version, self._options = job, before, options
            self._began_at = job.restore_point
            if self._cancelled:
                job.cancel()

    @staticmethod
    def _is_up(status: JobStatus) -> bool:
        """Whether all subtasks run, or have finished."""
        return status.state is JobState.RUNNING and all(_UP.issuperset(v.states) for v in status.vertices)

    def _is_last(self, execution: LocalJob) -> bool:
        """Whether nothing follows an execution that is over."""
        with self._changed:
            return self._present is execution and self._moving_to is None

    def _left_ms(self, end_ns: int | None) -> float | None:
        return None if end_ns is None else (end_ns - self._clock.monotonic_ns()) / 1e6


_BY_HAND = "stop it, and resume it with -p N"
