"""Finds a running job by its name or id, and waits until the job has done what it was asked to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flowrun.cli.console import say
from flowrun.cli.views.figures import SHORT_ID, duration_text
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import ClusterError, PipelineError, StateError, near_matches

if TYPE_CHECKING:
    from flowrun.cli.cluster_arguments import ClusterOptions
    from flowrun.runners.control import Json
    from flowrun.runners.control_client import ListedJob
    from flowrun.runners.job_document import JobDocument

HERE = "on this machine"
_POLL_MS = 100
_FIRST_MESSAGE_MS = 1_000
_NEXT_MESSAGE_MS = 5_000


class NamedJob(Protocol):
    """What can be asked for by the name or the id of a job."""

    @property
    def job_id(self) -> str: ...

    @property
    def name(self) -> str: ...


J = TypeVar("J", bound=NamedJob)


class JobControlClient(Protocol):
    """What asks something of one job; see `flowrun.runners.control_client.JobClient`."""

    @property
    def entry(self) -> ListedJob: ...

    def describe(self) -> Mapping[str, Json]: ...

    def document(self) -> JobDocument | None: ...

    def place(
        self, kind: str, directory: str | None = None, *, drain: bool = False, parallelism: int | None = None
    ) -> str: ...

    def answer(self, order: str) -> Mapping[str, Json]: ...


@record(eq=False)
class RunningJobs:
    """Jobs that can be asked for something.

    Attributes:
        entries: those that run.
        ended: those that have ended, as far as that is known.
        client: entry → what asks it.
        where: they run, as a clause: `on this machine`.
        is_there: whether a job that does not answer is still listed.
        if_none: a hint for who asks for a job although none runs.
    """

    entries: Sequence[Any]
    ended: Sequence[Any]
    client: Callable[[Any], JobControlClient]
    where: str
    is_there: Callable[[Any], bool]
    if_none: str


@contextmanager
def running_jobs(cluster: ClusterOptions | None) -> Iterator[RunningJobs]:
    """The jobs of this user on this machine, or those of a cluster.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    if cluster is None:
        from flowrun.runners.control_client import client_of
        from flowrun.runners.registry import JobRegistry

        registry = JobRegistry()
        yield RunningJobs(
            registry.entries(),
            (),
            client_of,
            HERE,
            lambda entry: entry.job_id in {e.job_id for e in registry.entries()},
            "a job is there for as long as its `flowrun run` lives",
        )
        return
    from functools import partial

    from flowrun.runners.control_client import JobClient
    from flowrun.runtime.lifecycle import JobState

    with cluster.client() as client:
        jobs = client.list_jobs()
        over = [JobState(job.state).is_terminal for job in jobs]
        yield RunningJobs(
            [job for job, ended in zip(jobs, over, strict=True) if not ended],
            [job for job, ended in zip(jobs, over, strict=True) if ended],
            partial(JobClient, client),
            f"on {cluster}",
            lambda _: True,
            how_to_list_ended(cluster),
        )


def named(wanted: str, jobs: Sequence[J]) -> list[J]:
    """The jobs of this name, or else those whose id begins with it."""
    return [j for j in jobs if j.name == wanted] or [j for j in jobs if wanted and j.job_id.startswith(wanted)]


def how_to_list_ended(cluster: ClusterOptions) -> str:
    """A hint for who asks for a job of a cluster that runs none."""
    return f"`flowrun jobs {cluster.as_arguments()}` lists those that ended"


def choose(wanted: str, jobs: RunningJobs) -> Any:
    """The running job that `wanted` names; see `choose_among`."""
    return choose_among(wanted, jobs.entries, jobs.where, jobs.if_none)


def choose_among(wanted: str, running: Sequence[ListedJob], where: str, if_none: str) -> Any:
    """The job whose name is `wanted`, or else whose id begins with it.

    Raises:
        PipelineError: there is none, or more than one.
    """
    if not running:
        raise PipelineError.of(f"no job of yours runs {where}", if_none)
    found = named(wanted, running)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"{j.job_id[:SHORT_ID]} ('{j.name}', process {j.pid})" for j in found)
        raise PipelineError.of(
            f"'{wanted}' fits {len(found)} running jobs: {listed}", "name one by more digits of its id"
        )
    close = near_matches(wanted, [*(j.name for j in running), *(j.job_id[:SHORT_ID] for j in running)])
    listed = ", ".join(sorted(f"'{j.name}' ({j.job_id[:SHORT_ID]})" for j in running))
    hint = "did you mean " + " or ".join(f"'{c}'" for c in close) + "?" if close else f"running: {listed}"
    raise PipelineError.of(f"no running job has the id or name '{wanted}'", hint)


def choose_known(wanted: str, jobs: RunningJobs) -> Any:
    """The running job that `wanted` names, else the newest of those that have ended and that it names.

    Raises:
        PipelineError: it names none, or several that run.
    """
    over = newest_ended(wanted, jobs)
    return over if over is not None and not named(wanted, jobs.entries) else choose(wanted, jobs)


def newest_ended(wanted: str, jobs: RunningJobs) -> Any | None:
    """The newest of the jobs that have ended and that `wanted` names; None: there is none."""
    return next(reversed(named(wanted, jobs.ended)), None)


def wait_for_answer(
    client: JobControlClient, order: str, clock: Clock, *, doing: str, timeout_ms: float | None
) -> Mapping[str, Json]:
    """Wait until a job has carried out an order, and say now and then that it is still doing so, and what the job waits for; gives the
    job's answer.

    Args:
        client: the connection to the job.
        order: the id that the job gave the order.
        clock: the clock by which to wait.
        doing: what the job is doing, as a text for the user.
        timeout_ms: after how long to give up waiting; None: never.

    Raises:
        StateError: the job could not do it, and why; or it took longer than `timeout_ms` (the job goes on with it).
        ClusterError: the job has ended.
    """
    begin = clock.monotonic_ns()
    next_message_ms = _FIRST_MESSAGE_MS
    pause = threading.Condition()
    while True:
        answer = client.answer(order)
        if answer["state"] == "failed":
            hint = answer.get("hint")
            raise StateError(str(answer["message"]), hint=None if hint is None else str(hint))
        if answer["state"] == "done":
            return answer
        passed_ms = (clock.monotonic_ns() - begin) / 1e6
        if timeout_ms is not None and passed_ms >= timeout_ms:
            raise StateError(
                f"{doing}: not done after {duration_text(timeout_ms)}", hint="it goes on in the job: see `flowrun jobs`"
            )
        if passed_ms >= next_message_ms:
            waits_for = (look(client) or {}).get("waits_for")
            say(f"{doing} … {duration_text(passed_ms)}" + (f", it waits for {waits_for}" if waits_for else ""))
            next_message_ms += _NEXT_MESSAGE_MS
        with pause:
            clock.wait(pause, _POLL_MS)


def look(client: JobControlClient) -> Mapping[str, Json] | None:
    """The job's description of itself at this moment; None if it has just ended."""
    try:
        return client.describe()
    except ClusterError:
        return None
