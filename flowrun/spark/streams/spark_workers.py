"""The workers of a job that live in Spark's executors. Spark starts them, and starts them again wherever one was lost.

Each task executor is a job of Spark with one task, submitted by a thread of its own under a tag of its own, so that one that is lost
disturbs no other. Spark repeats a task that fails (`spark.task.maxFailures`) and one whose executor is gone; a job that Spark gives up is
submitted again after a pause. The tasks need no rows: `mapInArrow` over one partition is what both Spark in this process and Spark
Connect can run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowrun.core.record import record
from flowrun.errors import ClusterError, FlowrunError, JobFailedError, SetupError
from flowrun.runtime.cluster.local_workers import WorkerNumbers
from flowrun.runtime.cluster.remote_workers import RemoteWorkers
from flowrun.runtime.rpc.address import Address, TcpAddress
from flowrun.runtime.rpc.connection import RpcConnection
from flowrun.runtime.rpc.link import Credentials
from flowrun.runtime.slot_pool import Expect
from flowrun.runtime.timers import TimerThread
from flowrun.spark.failures import job_failure
from flowrun.spark.streams.hosting import hosting, number_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_FAILED_STARTS = 5
"""After so many jobs of Spark in a row that failed before their task executor had connected, none is submitted any more for it."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
"""Between a job of Spark that failed and the next one."""
_LOOK_EVERY_S = 0.5
_END_BY_ITSELF_S = 3.0
"""How long a task may take to end once its task executor's connection is closed; then Spark ends it."""
_END_BY_SPARK_S = 10.0
_END_HANGING_S = 30.0
"""How long one whose connection is lost may take to end, or to come again, before Spark is told to end its task."""

_log = logging.getLogger(__name__)

Orders = Callable[[int, TcpAddress], bytes]
"""Gives what the process of a task executor is told, from its number and from where the job manager is reached."""


@record(eq=False)
class SparkHosting:
    """How task executors are started, and waited for.

    Attributes:
        module: what their processes run, as `python -m` does.
        orders: what each is told.
        listen: where this process listens for them.
        host: of this machine, at which they reach it.
        patience_s: how long all of them may take to come at the beginning.
        most: how many there may be if the job is rescaled to more slots; None: as many as at the beginning.
        waiting: is told a few times a second, while they are waited for, how many of them are there.
    """

    module: str
    orders: Orders
    listen: TcpAddress
    host: str
    patience_s: float
    most: int | None = None
    waiting: Callable[[int], None] = lambda _: None


class SparkWorkers:
    """See `flowrun.runtime.cluster.worker_cluster.Workers`. Thread-safe.

    Args:
        session: of Spark.
        numbers: of task executors, and what each offers.
        hosting: how they are started.
        credentials: of this run.
    """

    def __init__(
        self, session: SparkSession, numbers: WorkerNumbers, hosting: SparkHosting, credentials: Credentials
    ) -> None:
        self._session = session
        self._numbers = numbers
        self._hosting = hosting
        self._remote = RemoteWorkers(hosting.listen, credentials, self._note_address)
        self._changed = threading.Condition()
        self._address: TcpAddress | None = None
        self._connected: set[str] = set()
        self._came: set[int] = set()
        """Numbers of the task executors that have connected since their last job was submitted."""
        self._submitted: Counter[int] = Counter()
        """Number of a task executor → how many jobs were submitted for it."""
        self._failure: FlowrunError | None = None
        """Of the first job that failed before all task executors had come."""
        self._all_came = False
        self._given_up = 0
        self._closing = threading.Event()
        self._expect: Expect = lambda _slots, _why: None
        self._threads: dict[str, threading.Thread] = {}
        """Tag → the thread that submits the jobs with it."""

    def start(self, accept: Callable[[RpcConnection], None], expect: Expect, timers: TimerThread) -> None:
        """Have Spark start all task executors, and wait until they are there.

        Raises:
            ClusterError: they are not within `patience_s`, and why; or this process cannot listen.
            SetupError: one of them cannot be started.
        """
        self._expect = expect

        def take(connection: RpcConnection) -> None:
            self._welcome(connection)
            accept(connection)

        self._remote.start(take, lambda _slots, _why: None, timers)
        expect(self._numbers.workers * self._numbers.slots, "")
        self._begin_all()
        self._wait_for_all()

    @property
    def bring_slots(self) -> bool:
        """They have as many as this process says."""
        return False

    def provide(self, slots: int) -> int:
        """Have so many slots in all, on more task executors if Spark has cores for them; gives the number of each task executor."""
        workers = max(self._numbers.workers, min(slots, self._hosting.most or 0))
        each = -(-slots // workers)
        self._numbers = replace(self._numbers, workers=workers, slots=each)
        self._expect((workers - self._given_up) * each, "")
        self._begin_all()
        return each

    def why_closed(self, name: str, reason: str) -> str:
        """As the connection says: Spark tells of a lost task only when it gives up its job."""
        return reason

    def stop_accepting(self) -> None:
        """Let no task executor come any more, and submit no more jobs for them. Idempotent."""
        self._closing.set()
        self._remote.stop_accepting()

    def close(self) -> None:
        """End all task executors, and the jobs of Spark that host them. Idempotent."""
        self.stop_accepting()
        if self._join(_END_BY_ITSELF_S):
            return
        for tag, thread in self._threads.items():
            if thread.is_alive():
                _end_jobs(self._session, tag)
        if not self._join(_END_BY_SPARK_S):
            _log.warning("jobs of Spark that host task executors did not end in time")

    def _tag(self, number: int) -> str:
        return f"flowrun-task-executor-{number}-{id(self):x}"

    def _begin_all(self) -> None:
        """Start the threads of task executors that have none yet."""
        for number in range(len(self._threads) + 1, self._numbers.workers + 1):
            thread = threading.Thread(target=self._keep, args=(number,), name=f"flowrun-spark-{number}", daemon=True)
            self._threads[self._tag(number)] = thread
            thread.start()

    def _join(self, limit_s: float) -> bool:
        """Whether all threads have ended by then."""
        until = time.monotonic() + limit_s
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads.values())

    def _note_address(self, address: Address) -> None:
        assert isinstance(address, TcpAddress)
        self._address = TcpAddress(self._hosting.host, address.port)

    def _welcome(self, connection: RpcConnection) -> None:
        name = connection.peer.id
        with self._changed:
            self._connected.add(name)
            self._came.add(number_of(name))
            self._changed.notify_all()
        connection.on_close(lambda _: self._miss(name))

    def _miss(self, name: str) -> None:
        number = number_of(name)
        with self._changed:
            self._connected.discard(name)
            submitted = self._submitted[number]
        threading.Thread(
            target=self._end_hanging, args=(number, submitted), name=f"flowrun-spark-{number}-lost", daemon=True
        ).start()

    def _end_hanging(self, number: int, submitted: int) -> None:
        """Have Spark end the task of a task executor that was lost and, after a while, has neither ended nor come again: it hangs.

        Args:
            number: of the task executor.
            submitted: how many jobs had been submitted for it when it was lost.
        """
        if self._closing.wait(_END_HANGING_S):
            return
        with self._changed:
            if self._submitted[number] != submitted or number in map(number_of, self._connected):
                return
        _log.warning("task executor %d on Spark is lost, and its task has not ended: Spark is told to end it", number)
        _end_jobs(self._session, self._tag(number))

    def _wait_for_all(self) -> None:
        until = time.monotonic() + self._hosting.patience_s
        while True:
            with self._changed:
                self._changed.wait_for(self._has_begun_or_failed, min(_LOOK_EVERY_S, max(0, until - time.monotonic())))
                there, failure = len(self._connected), self._failure
                done = self._has_begun_or_failed()
                self._all_came = done and failure is None
            if failure is not None:
                raise _cannot_start(failure)
            if done:
                return
            if time.monotonic() >= until:
                raise self._too_few(there)
            self._hosting.waiting(there)

    def _has_begun_or_failed(self) -> bool:
        return len(self._connected) >= self._numbers.workers or self._failure is not None

    def _too_few(self, there: int) -> ClusterError:
        wanted, patience = self._numbers.workers, f"{self._hosting.patience_s:g} s"
        running = _running_tasks(self._session)
        if running is not None and running > there:
            return ClusterError(
                f"{there} of {wanted} task executors came within {patience}: Spark runs {running}, and not all of them have "
                f"reached this process at {self._address}",
                hint="--listen names another address of this machine, --patience says how long they may take",
            )
        if there == 0:
            return ClusterError(
                f"Spark started none of {wanted} task executors within {patience}: it has no executors, or these have no free cores",
                hint="its master or resource manager shows which; --patience says how long to wait for them",
            )
        return ClusterError(
            f"Spark started {there} of {wanted} task executors within {patience}: its executors have no more free cores",
            hint=f"each takes a core: give Spark more, ask for fewer (--task-executors {there}), or wait longer (--patience)",
        )

    def _keep(self, number: int) -> None:
        """Have the jobs of one task executor run, one after the other, until the end of this run."""
        failed_starts = 0
        pause_s = _FIRST_PAUSE_S
        while not self._closing.is_set():
            with self._changed:
                self._came.discard(number)
                self._submitted[number] += 1
            where = f"task executor {number} on Spark"
            how = f"{where}: its connection was closed"
            try:
                self._run_job(number)
            except Exception as error:
                failure = _failure(error, where)
                how = failure.message
                with self._changed:
                    if not self._all_came:
                        self._failure = self._failure or failure
                        self._changed.notify_all()
                        return
            if self._closing.is_set():
                return
            with self._changed:
                had_come = number in self._came
            failed_starts, pause_s = (0, _FIRST_PAUSE_S) if had_come else (failed_starts + 1, pause_s)
            if failed_starts >= MOST_FAILED_STARTS:
                self._give_up(how)
                return
            _log.warning("%s: it is started again", how)
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _run_job(self, number: int) -> None:
        """Run a task executor as a job of Spark, to its end."""
        assert self._address is not None
        orders = self._hosting.orders(number, self._address)
        _tag_jobs(self._session, self._tag(number))
        function: Any = hosting(self._hosting.module, orders)
        self._session.range(0, 1, 1, 1).mapInArrow(function, "id bigint").collect()

    def _give_up(self, reason: str) -> None:
        with self._changed:
            self._given_up += 1
            left = self._numbers.workers - self._given_up
        why = f"{reason}: it was started {MOST_FAILED_STARTS} times in vain, and is not any more"
        _log.error("%s", why)
        self._expect(left * self._numbers.slots, why)


def _failure(error: Exception, where: str) -> FlowrunError:
    if isinstance(error, OSError):
        return JobFailedError(f"{where}: the Java process of Spark is gone ({error})")
    try:
        return job_failure(error, where)
    except Exception:  # Spark is asked what its error means, and may be gone
        return JobFailedError(f"{where}: {type(error).__name__}: {error}")


def _cannot_start(failure: FlowrunError) -> SetupError:
    hint = failure.hint
    if "ModuleNotFoundError" in failure.message:
        hint = (
            "install flowrun, of the same version, in the Python of Spark's executors; "
            "the environment variable PYSPARK_PYTHON names another Python"
        )
    error = SetupError(failure.message, hint=hint)
    error.__cause__ = failure.__cause__
    return error


def _tag_jobs(session: SparkSession, tag: str) -> None:
    """Mark all jobs that this thread submits from now on."""
    if is_in_this_process(session):
        session.sparkContext.addJobTag(tag)
    else:
        session.addTag(tag)


def _end_jobs(session: SparkSession, tag: str) -> None:
    """End jobs with a mark, whatever thread has submitted them (tags of a session in this process are those of a thread)."""
    with suppress(Exception):  # a Spark that is gone has no jobs any more
        if is_in_this_process(session):
            session.sparkContext.cancelJobsWithTag(tag)
        else:
            session.interruptTag(tag)


def is_in_this_process(session: SparkSession) -> bool:
    """Whether a session is no connection to a Connect server."""
    return hasattr(session, "_jsparkSession")


def _running_tasks(session: SparkSession) -> int | None:
    """How many tasks Spark runs at the moment; None: it does not say (Spark Connect)."""
    try:
        tracker = session.sparkContext.statusTracker()
        found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:
        return None
    return sum(int(stage.numActiveTasks) for stage in found if stage is not None)
