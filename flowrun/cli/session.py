"""Runs a session cluster in this process until a signal ends it."""

from __future__ import annotations

import gc
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from flowrun.cli.arguments import NO_STOP_OPTIONS, StopOptions
from flowrun.cli.cluster_arguments import cluster_credentials, host_and_port, proofs_as_arguments
from flowrun.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, say
from flowrun.cli.ending_jobs import STOP_WITHIN, EndWatch, stop_jobs
from flowrun.cli.recovering import LeaderSilence
from flowrun.cli.restoring import absolute_location
from flowrun.core.record import record
from flowrun.core.units import parse_duration_ms
from flowrun.errors import ClusterError
from flowrun.rest.answering import answer_request
from flowrun.rest.dispatched import DispatcherJobs
from flowrun.rest.doors import Door, DoorOptions, open_door
from flowrun.rest.server import RestServer
from flowrun.runners.registry import LOOPBACK
from flowrun.runners.rest_requests import RestReply
from flowrun.runners.session.dispatcher import Dispatcher
from flowrun.runners.session.job_store import JobStore
from flowrun.runners.session.messages import JobSummary, RestPlace
from flowrun.runners.session.session_cluster import AnswerRequest, SessionCluster
from flowrun.runners.session.warm_up import warm_up
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.address import Address, TcpAddress
from flowrun.runtime.watchdog.leader_watch import watched_leader
from flowrun.state.storage.leadership import Leadership
from flowrun.state.storage.state_path import resolve

_LOOK_S = 0.5


@record
class SessionOptions:
    """What a session cluster is told.

    Attributes:
        listen: where clients and task managers come.
        secret_file: of the cluster; it is made if it is not there.
        tls: folder of certificates; None: connections are not encrypted.
        state: folder in which its jobs are kept; None: they end with it.
        hang_timeout_ms: how long it may hang while others wait for the folder; 0: for ever.
        quiet: whether nothing is said of how to use it.
        rest: where the REST API listens; None: at any free port of this machine.
        stop: how a signal ends its jobs. Those that are kept in a folder are left to the next cluster, unless a savepoint is asked for.
    """

    listen: Address
    secret_file: Path
    tls: Path | None
    state: str | None
    hang_timeout_ms: int
    quiet: bool
    rest: DoorOptions | None = None
    stop: StopOptions = NO_STOP_OPTIONS


def of_a_cluster(stop: StopOptions) -> StopOptions:
    """How the jobs of a cluster end: there is a limit of time, as a job without slots would never stop."""
    return stop if stop.within_ms is not None else replace(stop, within_ms=parse_duration_ms(STOP_WITHIN))


@record(eq=False)
class _Within:
    """Asks the REST API of a cluster of this process."""

    answer: AnswerRequest

    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        """See `RestRequests`."""
        return self.answer(method, path, body)


def run_session(options: SessionOptions) -> int:
    """Run a cluster until SIGINT, SIGTERM or SIGHUP, which ends its jobs, too; gives the exit code.

    Raises:
        ClusterError: the address or the secret cannot be used, or the cluster can start no process any more.
    """
    credentials = cluster_credentials(options.secret_file, options.tls, create=True)
    warm_up()
    gc.freeze()  # a collection in a job's process would write to every page that holds objects, and so copy it
    asked, asked_again = threading.Event(), threading.Event()

    def end(number: int, _frame: FrameType | None) -> None:
        if asked.is_set() and number != signal.SIGHUP:  # a terminal that is closed may send several of them
            asked_again.set()
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    store = lead = None
    if options.state is not None:
        folder = resolve(absolute_location(options.state))
        lead = Leadership(folder)
        if not _await_lead(lead, asked, options):
            return EXIT_OK
        store = JobStore(folder / "jobs")
    with ExitStack() as stack:
        cluster = stack.enter_context(SessionCluster(options.listen, credentials, _answering, store))
        door = stack.enter_context(_serving(cluster, options.rest))
        if lead is not None:
            probe = cluster.dispatcher.probe
            stack.enter_context(
                watched_leader(options.hang_timeout_ms, "the job manager of the cluster", probe, lead.beat)
            )
        if not options.quiet:
            _say_how_to_use(cluster.address, proofs_as_arguments(options.secret_file, options.tls), door)
        while not asked.wait(_LOOK_S):
            if cluster.wait(0):
                raise ClusterError("the process that starts jobs was ended from outside: the cluster ends, too")
        return _end_jobs(cluster.dispatcher, options, is_kept=store is not None, is_enough=asked_again.is_set)


def _end_jobs(dispatcher: Dispatcher, options: SessionOptions, *, is_kept: bool, is_enough: Callable[[], bool]) -> int:
    """What becomes of the jobs of a cluster that is about to end; gives its exit code, which is that of a run that is interrupted."""
    jobs = dispatcher.list_jobs()
    running = [job for job in jobs if job.pid or not JobState(job.state).is_terminal]
    if is_kept and options.stop.savepoint is None:
        if running:
            say(f"ended with the cluster; they go on when it is started again: {_names(running)}")
        return EXIT_OK
    if not running:
        return EXIT_OK
    requests = _Within(_answering(dispatcher))
    ids = {job.job_id for job in running}
    watch = EndWatch(requests, quiet=options.quiet, known=[job.job_id for job in jobs if job.job_id not in ids])
    left = stop_jobs(requests, options.stop, quiet=options.quiet, is_enough=is_enough)
    watch.look()
    if left:
        say(f"did not stop in time, so their last checkpoints stay: {_names(left)}")
    return EXIT_FAILED if watch.has_failures else EXIT_INTERRUPTED


def _names(jobs: Iterable[JobSummary]) -> str:
    return ", ".join(f"'{job.name}'" for job in jobs)


def _await_lead(leadership: Leadership, asked: threading.Event, options: SessionOptions) -> bool:
    """Wait until no other dispatcher has the folder; False: a signal came first. Whoever leads keeps the lead until it ends."""
    if leadership.try_lead():
        leadership.begin()
        return True
    leader = leadership.leader()
    if not options.quiet:
        who = "another process" if leader is None else f"process {leader.pid} on {leader.host}"
        say(f"standing by: {who} leads the cluster")
    watch = LeaderSilence(leadership, options.hang_timeout_ms)
    while not asked.wait(_LOOK_S):
        if leadership.try_lead():
            leadership.begin()
            return True
        watch.look()
    return False


def _answering(dispatcher: Dispatcher) -> AnswerRequest:
    """What answers clients that come with the cluster's secret or a certificate."""
    return partial(answer_request, DispatcherJobs(dispatcher))


@contextmanager
def _serving(cluster: SessionCluster, options: DoorOptions | None) -> Iterator[Door]:
    """A context in which the jobs of a cluster are served; gives the door.

    Raises:
        ClusterError: it cannot listen there.
    """
    wanted = DoorOptions(TcpAddress(LOOPBACK, 0)) if options is None else options
    door = open_door(wanted)
    cluster.dispatcher.rest = RestPlace(door.url, None if door.token_file is not None else door.token)
    with RestServer(DispatcherJobs(cluster.dispatcher), (door,)):
        yield door


def _say_how_to_use(address: Address, proofs: str, door: Door) -> None:
    place = host_and_port(address)
    say(f"task managers join with:\n  flowrun taskmanager --jobmanager {place}{proofs}")
    say(f"jobs are run with:\n  flowrun run FILE --cluster {place}{proofs}")
    say(f"they are seen at {door.url}; the address with its token:\n  flowrun ui --cluster {place}{proofs}")
    if door.token_file is not None:
        say(f"commands ask the REST API with:\n  --cluster {door.url} --token-file {shlex.quote(str(door.token_file))}")
