"""What a running job does when it is asked from another process: tell about itself, take savepoints, stop, cancel,
rescale.

This is the part that knows nothing of HTTP; `flowrun.rest` lets others reach it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from flowrun.core.clock import Clock
from flowrun.core.recent_logs import RECENT_LOGS, LogLines
from flowrun.core.record import record
from flowrun.errors import FlowrunError, StateError
from flowrun.runners.job_document import JobDocument
from flowrun.runners.registry import JobEntry
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.lifecycle import JobState

if TYPE_CHECKING:
    from flowrun.runtime.job_details import JobDetails
    from flowrun.runtime.job_progress import JobProgress

MOST_REQUESTS = 256
"""Answers that are remembered for those who asked; the oldest that is answered makes room."""
LINGER_MS = 2_000
"""How long the endpoint of a job that is over waits for an asker to fetch its answer."""
WATCHERS_MS = 1_100
"""How long it waits for those who show the job, once one of them has seen the end: they ask each second."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class Ticket(Protocol):
    """The answer to one request for a snapshot: `flowrun.runtime.jobmaster.snapshot_ticket`."""

    @property
    def is_answered(self) -> bool: ...

    def wait(self, timeout_ms: float | None = None) -> str: ...


class ControllableJob(Protocol):
    """What the endpoint needs of a job; all methods are thread-safe and none blocks for long."""

    @property
    def job_id(self) -> str: ...

    def status(self) -> JobStatus: ...

    def details(self) -> JobDetails: ...

    def stop(self, drain: bool = False) -> None: ...

    def cancel(self) -> None: ...

    def take_snapshot(
        self, directory: str | None = None, *, savepoint: bool = True, stop: bool = False, drain: bool = False
    ) -> Ticket: ...

    def rescale(self, parallelism: int) -> Ticket: ...

    def sample_rows(self, exchange: str, for_ms: int) -> None: ...


class HostedJob(ControllableJob, Protocol):
    """A job of this process."""

    @property
    def checkpoint_root(self) -> str | None: ...

    def wait(self, timeout_ms: float | None = None) -> JobResult | None: ...


@record
class Order:
    """What somebody asks of a job.

    Attributes:
        kind: `savepoint`, `stop`, `cancel`, `rescale` or `sample`.
        directory: for savepoints; None: the job's default. A `stop` without one ends with a checkpoint.
        drain: `stop` lets event time end, so that open windows fire.
        parallelism: to which `rescale` takes the job.
        exchange: whose last rows `sample` keeps, so that the job's details have them.
        seconds: for how long; 0: not any more.
    """

    kind: str
    directory: str | None = None
    drain: bool = False
    parallelism: int | None = None
    exchange: str | None = None
    seconds: int = 0


class JobControl:
    """Carries out orders and remembers their answers. Thread-safe; knows nothing of HTTP.

    Args:
        job: to be controlled.
        entry: as it is registered.
        sources: ids of the vertices that read from outside.
        clock: of waiting.
        checkpoints: whether the job takes checkpoints, so that a stop ends with one.
        savepoints: where savepoints go if an order does not say; None: where the job puts them.
        document: its text; None: nobody has it.
        takes_versions: whether another version of the pipeline can take its place; see `flowrun apply`.
    """

    def __init__(
        self,
        job: HostedJob,
        entry: JobEntry,
        sources: frozenset[str],
        clock: Clock,
        *,
        checkpoints: bool = False,
        savepoints: str | None = None,
        document: JobDocument | None = None,
        takes_versions: bool = False,
    ) -> None:
        self._document = document
        self._takes_versions = takes_versions
        self._job = job
        self._entry = entry
        self._sources = sources
        self._clock = clock
        self._checkpoints = checkpoints
        self._savepoints = savepoints
        self._changed = threading.Condition()
        self._orders: dict[str, _Placed] = {}
        self._numbers = 0
        self._watched_ns: int | None = None
        self._end_told_ns: int | None = None

    def describe(self) -> dict[str, Json]:
        """The job at this moment, as JSON."""
        status = self._job.status()
        rows = sum(v.records_in for v in status.vertices if v.vertex_id in self._sources)
        found: dict[str, Json] = {
            "job_id": self._entry.job_id,
            "name": self._entry.name,
            "file": self._entry.file,
            "pid": self._entry.pid,
            "state": status.state.value,
            "started_ms": self._entry.started_ms,
            "running_ms": status.running_ms,
            "rows_read": rows,
            "rows_per_s": round(rows * 1000 / status.running_ms, 1) if status.running_ms else 0.0,
            "restarts": status.restarts,
            "slots": status.slots,
            "waits_for": status.waits_for,
            "watermark": min((v.watermark for v in status.vertices if v.watermark is not None), default=None),
            "folder": self._job.checkpoint_root,
            "takes_versions": self._takes_versions,
            "checkpoints": None,
        }
        if (checkpoints := status.checkpoints) is not None:
            last = checkpoints.last
            found["checkpoints"] = {
                "completed": checkpoints.completed,
                "failed": checkpoints.failed,
                "in_progress": checkpoints.in_progress,
                "last_failure": checkpoints.last_failure,
                "last": None
                if last is None
                else {
                    "id": last.checkpoint_id,
                    "kind": last.kind.value,
                    "path": last.path,
                    "triggered_ms": last.triggered_ms,
                    "duration_ms": round(last.duration_ms, 1),
                    "state_bytes": last.state_bytes,
                },
            }
        return found

    def details(self, *, within_ms: int | None = None) -> JobDetails:
        """The job at this moment in full, subtask by subtask.

        Args:
            within_ms: how long another process may take to answer for a job. This one answers at once.
        """
        details = self._job.details()
        with self._changed:
            now = self._clock.monotonic_ns()
            if not details.status.state.is_terminal:
                self._watched_ns = now
            elif self._end_told_ns is None:
                self._end_told_ns = now
                self._changed.notify_all()
        return details

    def watch(self) -> JobProgress:
        """How the job stands, or how it has ended."""
        from flowrun.runtime.job_progress import JobProgress  # few runs are asked for it
        from flowrun.runtime.rpc.error_values import error_to_value

        status = self._job.status()
        if not status.state.is_terminal:
            return JobProgress(status)
        try:
            return JobProgress(status, self._job.wait(0))
        except FlowrunError as error:
            return JobProgress(status, None, error_to_value(error))

    def document(self) -> JobDocument | None:
        """The text of the job; None: nobody has it."""
        return self._document

    def logs(self, after: int = 0) -> LogLines:
        """The last lines of the log of the job's process, behind the one of that number."""
        return RECENT_LOGS.after(after)

    def place(self, order: Order) -> str:
        """Have an order carried out; gives the id under which `answer` tells what became of it.

        Raises:
            StateError: it cannot be carried out, and why.
        """
        ticket: Ticket | None = None
        status = self._job.status()
        if status.state.is_terminal:
            raise StateError(f"the job is over: it is {status.state.value}")
        if order.kind == "stop" and status.state is JobState.CREATED and status.waits_for is not None:
            what = status.waits_for.partition(":")[0]
            raise StateError(f"the job has not begun: it waits for {what}", hint="cancel it, or stop it when it runs")
        if order.kind == "cancel":
            self._job.cancel()
        elif order.exchange is not None:
            self._job.sample_rows(order.exchange, order.seconds * 1000)
        elif order.parallelism is not None:
            ticket = self._job.rescale(order.parallelism)
        elif order.kind == "savepoint":
            ticket = self._job.take_snapshot(order.directory or self._savepoints)
        elif order.directory is not None or self._checkpoints:
            ticket = self._job.take_snapshot(
                order.directory, savepoint=order.directory is not None, stop=True, drain=order.drain
            )
        else:
            self._job.stop(drain=order.drain)
        with self._changed:
            self._numbers += 1
            number = str(self._numbers)
            self._orders[number] = _Placed(order, ticket, self._clock.monotonic_ns(), order.exchange is not None)
            self._make_room()
        return number

    def answer(self, number: str) -> dict[str, Json] | None:
        """What became of an order: `state` is pending, done (with `path` if it left one) or failed; None for an unknown one.

        Orders that end the job are done when it has ended.
        """
        with self._changed:
            placed = self._orders.get(number)
            if placed is None:
                return None
            placed.asked_ns = self._clock.monotonic_ns()
        return self._outcome(placed)

    def delivered(self, number: str) -> None:
        """The answer, which was not pending, has reached the asker."""
        with self._changed:
            if number in self._orders:
                self._orders[number].is_delivered = True
                self._changed.notify_all()

    def linger(self, *, watchers: bool = True) -> None:
        """Wait until everybody who asked has the answer, at most `LINGER_MS` after the last question of each.

        Pages that show the job ask each second: they are to see how it ended, so the first that does has the others time to ask, too.

        Args:
            watchers: whether to wait for those; not if somebody else can tell them.
        """
        began = self._clock.monotonic_ns()
        with self._changed:
            watched = watchers and self._watched_ns is not None and began - self._watched_ns < LINGER_MS * 1_000_000
            while True:
                now = self._clock.monotonic_ns()
                open_ms = [LINGER_MS - (now - p.asked_ns) / 1e6 for p in self._orders.values() if not p.is_delivered]
                left = max(*open_ms, self._watchers_ms(began, now) if watched else 0.0, 0.0)
                if left <= 0:
                    return
                self._clock.wait(self._changed, left)

    def _watchers_ms(self, began: int, now: int) -> float:
        """How long those who watch the job may still come to see its end."""
        left = LINGER_MS - (now - began) / 1e6
        return left if self._end_told_ns is None else min(left, WATCHERS_MS - (now - self._end_told_ns) / 1e6)

    def _outcome(self, placed: _Placed) -> dict[str, Json]:
        path: str | None = None
        if placed.ticket is not None:
            if not placed.ticket.is_answered:
                return {"state": "pending"}
            try:
                path = placed.ticket.wait(0)
            except StateError as error:
                return {"state": "failed", "message": error.message, "hint": error.hint}
        state = self._job.status().state
        if placed.order.kind not in ("savepoint", "rescale", "sample") and not state.is_terminal:
            return {"state": "pending", "path": path}
        return {"state": "done", "path": path or None, "job_state": state.value}

    def _make_room(self) -> None:
        if len(self._orders) <= MOST_REQUESTS:
            return
        for number, placed in list(self._orders.items()):
            if placed.is_delivered:
                del self._orders[number]
                return


@record(frozen=False)
class _Placed:
    order: Order
    ticket: Ticket | None
    asked_ns: int
    is_delivered: bool = False
