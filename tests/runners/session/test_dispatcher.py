"""The dispatcher's book of jobs: processes that die, orders, and jobs that another dispatcher had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from flowrun.errors import ClusterError, FencingError, StateError
from flowrun.rest.dispatched import DispatcherJobs
from flowrun.runners.control import Json, Order
from flowrun.runners.session.dispatcher import LIST_ANSWER_MS, MOST_ENDED_JOBS, MOST_LOSSES, Dispatcher
from flowrun.runners.session.job_store import JobStore
from flowrun.runners.session.messages import JobProcess, JobSubmission
from flowrun.runtime.cluster.job_files import job_files
from flowrun.runtime.cluster.session_slots import SessionSlots
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.error_values import error_from_value
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.state_path import resolve
from tests.runtime.cluster.test_session_slots import Timers

FILES = job_files({"mine.py": b"x = 1"})


class Connection:
    """A connection to a job manager process that knows three kinds of orders."""

    def __init__(self) -> None:
        self.is_gone = False
        self.is_silent = False
        self.asked: list[tuple[str, int]] = []
        self.waits_for: str | None = None

    def gateway(self, *_: object, timeout_ms: int = 0) -> Connection:
        self.timeout_ms = timeout_ms
        return self

    def on_close(self, listener: Callable[[str], None]) -> None:
        self.close = listener

    def place(self, order: Order) -> str:
        if order.kind == "rescale":
            raise StateError("it takes no checkpoints")
        return f"{order.kind}-1"

    def answer(self, order_id: str) -> dict[str, str]:
        if self.is_gone:
            raise ClusterError("gone")
        return {"state": "pending", "order": order_id}

    def _hear(self, what: str) -> None:
        self.asked.append((what, self.timeout_ms))
        if self.is_silent:
            raise ClusterError("it did not answer")

    def describe(self) -> dict[str, object]:
        self._hear("describe")
        return {"job_id": "of the process", "started_ms": 1, "rows_read": 7, "waits_for": self.waits_for}

    def details(self) -> JobDetails:
        self._hear("details")
        status = JobStatus("of the process", "p", JobState.RUNNING, 1, 2, (), waits_for=self.waits_for)
        return JobDetails(status, 1, 2, (), (), (), (), {})

    def watch(self) -> JobProgress:
        self._hear("watch")
        return JobProgress(JobStatus("of the process", "p", JobState.RUNNING, 1, 2, (), waits_for=self.waits_for))


class World:
    """A dispatcher whose processes the test starts and ends."""

    def __init__(self, store: JobStore | None = None) -> None:
        self.spawned: list[JobProcess] = []
        self.killed: list[JobProcess] = []
        self.is_gone = False
        self.timers = Timers()
        self.dispatcher = Dispatcher(SessionSlots(self.timers), self, self.timers, store)

    def spawn(self, name: str) -> None:
        if self.is_gone:
            raise ClusterError("the process that forks them was ended from outside")
        self.spawned.append(JobProcess.named(name))

    def kill(self, name: str) -> None:
        self.killed.append(JobProcess.named(name))

    def submit(self, withheld: tuple[str, ...] = ()) -> str:
        kept = PipelineText("p.yaml", "name: p", "/there", withheld=withheld)
        text = JobText(kept, dict.fromkeys(withheld, "hidden"), FILES.files)
        return self.dispatcher.submit(JobSubmission("p", text, "f" * 64), FILES.read_file)

    def state(self, job_id: str) -> str:
        return {job.job_id: job.state for job in self.dispatcher.list_jobs()}[job_id]


def finished(job_id: str) -> JobProgress:
    status = JobStatus(job_id, "p", JobState.FINISHED, 1, 2, ())
    return JobProgress(status, JobResult(job_id, "p", JobState.FINISHED, 1.0, (), {}, stopped_at="/saved"))


def test_a_job_goes_from_its_submission_to_its_end() -> None:
    world = World()
    job_id = world.submit()
    first = JobProcess(job_id, 1)
    assert (world.spawned, world.state(job_id)) == ([first], "created")
    world.dispatcher.process_started(first, 77)
    process = Connection()
    world.dispatcher.attach(first, process)  # type: ignore[arg-type]
    assert world.dispatcher.fetch_job(first).since_ms is None
    assert world.dispatcher.read_file(first, FILES.files[0].digest) == b"x = 1"
    with pytest.raises(ClusterError, match="no such file"):
        world.dispatcher.read_file(first, "0" * 64)
    (listed,) = world.dispatcher.list_jobs()
    assert (listed.pid, listed.state) == (77, "running")
    assert world.dispatcher.watch_job(job_id).status.job_id == job_id
    described = world.dispatcher.describe_job(job_id)
    assert isinstance(described, dict)
    assert (described["rows_read"], described["started_ms"]) == (7, listed.started_ms)
    stop, snapshot = (world.dispatcher.place_order(job_id, Order(kind)) for kind in ("stop", "savepoint"))
    with pytest.raises(StateError, match="takes no checkpoints"):
        world.dispatcher.place_order(job_id, Order("rescale", parallelism=2))
    assert world.dispatcher.answer_order(job_id, stop) == {"state": "pending", "order": "stop-1"}
    world.dispatcher.end_job(first, finished("of the process"), {"rows_read": 9})
    process.is_gone = True
    world.dispatcher.process_ended(first, "ended with exit code 0")
    assert world.dispatcher.answer_order(job_id, stop) == {"state": "done", "path": "/saved", "job_state": "finished"}
    late = world.dispatcher.answer_order(job_id, snapshot)
    assert isinstance(late, dict)
    assert late["state"] == "failed"
    assert world.dispatcher.answer_order(job_id, "unknown") is None
    assert world.dispatcher.describe_job(job_id) == {"rows_read": 9, "pid": world.dispatcher.list_jobs()[0].pid}
    assert world.dispatcher.watch_job(job_id).status.job_id == job_id
    with pytest.raises(ClusterError, match="is over"):
        world.dispatcher.place_order(job_id, Order("cancel"))
    assert world.spawned == [first], "a process that ends after its job is not replaced"


def test_a_process_that_dies_is_replaced_and_given_up_only_without_progress() -> None:
    world = World()
    job_id = world.submit()
    for checkpoint_id in range(1, 3):
        for _ in range(MOST_LOSSES):
            world.dispatcher.process_ended(world.spawned[-1], "was killed by SIGKILL")
        assert world.state(job_id) == "created"
        assert world.dispatcher.fetch_job(world.spawned[-1]).since_ms is not None
        world.dispatcher.require_slots(world.spawned[-1], "tcp://127.0.0.1:1", 2, checkpoint_id)
    for _ in range(MOST_LOSSES + 1):
        world.dispatcher.process_ended(world.spawned[-1], "was killed by SIGKILL")
    assert world.state(job_id) == "failed"
    failure = world.dispatcher.watch_job(job_id).failure
    assert failure is not None
    assert "its job manager process was killed by SIGKILL, as those before it did" in str(error_from_value(failure))
    assert len(world.spawned) == 1 + 3 * MOST_LOSSES


def test_files_that_are_not_what_was_announced_are_refused() -> None:
    world = World()
    text = JobText(PipelineText("p.yaml", "name: p", "/there"), {}, FILES.files)
    with pytest.raises(ClusterError, match="is refused"):
        world.dispatcher.submit(JobSubmission("p", text, "f" * 64), lambda _: b"x = 2")
    assert world.dispatcher.list_jobs() == ()
    with pytest.raises(ClusterError, match="has no job"):
        world.dispatcher.watch_job("unknown")


def test_another_dispatcher_goes_on_with_what_is_kept(tmp_path: Path) -> None:
    store = JobStore(resolve(str(tmp_path)))
    before = World(store)
    over, running, secret = before.submit(), before.submit(), before.submit(("PASSWORD",))
    before.dispatcher.end_job(JobProcess(over, 1), finished(over), {"rows_read": 9})
    rescaled = JobText(PipelineText("p.yaml", "name: p", "/there", overrides={"settings.parallelism": "4"}))
    before.dispatcher.rescale_job(JobProcess(running, 1), rescaled, "e" * 64)
    after = World(store)
    after.dispatcher.recover()
    assert [after.state(job_id) for job_id in (over, running, secret)] == ["finished", "created", "failed"]
    assert after.spawned == [JobProcess(running, 1)]
    assert after.dispatcher.describe_job(over) == {"rows_read": 9, "pid": 0}, "its process is gone"
    order = after.dispatcher.fetch_job(JobProcess(running, 1))
    assert order.since_ms is not None
    assert (order.submission.text, order.submission.fingerprint) == (rescaled, "e" * 64)
    failure = after.dispatcher.watch_job(secret).failure
    assert failure is not None
    assert "so it cannot go on: PASSWORD" in str(error_from_value(failure))
    third = World(store)
    third.dispatcher.recover()
    assert third.state(secret) == "failed"


def test_what_ended_long_ago_is_forgotten_everywhere(tmp_path: Path) -> None:
    store = JobStore(resolve(str(tmp_path)))
    world = World(store)
    for _ in range(MOST_ENDED_JOBS + 1):
        job_id = world.submit()
        world.dispatcher.end_job(JobProcess(job_id, 1), finished(job_id), None)
    last = world.submit()
    assert len(world.dispatcher.list_jobs()) == len(store.load()) == MOST_ENDED_JOBS + 1
    assert world.state(last) == "created"
    world.dispatcher.close()
    with pytest.raises(ClusterError, match="is being ended"):
        world.submit()
    world.dispatcher.process_ended(JobProcess(last, 1), "was killed by SIGKILL")
    assert world.spawned[-1] == JobProcess(last, 1)


def test_what_a_process_says_after_another_one_has_taken_its_place_is_refused() -> None:
    world = World()
    job_id = world.submit()
    old, new = JobProcess(job_id, 1), JobProcess(job_id, 2)
    world.dispatcher.process_ended(old, "was killed by SIGKILL")
    assert world.spawned == [old, new]
    world.dispatcher.require_slots(new, "tcp://127.0.0.1:2", 2, 0)
    text = JobText(PipelineText("p.yaml", "name: p", "/there"))
    calls: list[Callable[[], object]] = [
        lambda: world.dispatcher.attach(old, Connection()),  # type: ignore[arg-type]
        lambda: world.dispatcher.fetch_job(old),
        lambda: world.dispatcher.require_slots(old, "tcp://127.0.0.1:1", 3, 0),
        lambda: world.dispatcher.rescale_job(old, text, "e" * 64),
        lambda: world.dispatcher.end_job(old, finished(job_id), None),
    ]
    for call in calls:
        with pytest.raises(FencingError, match=f"{job_id}.2 has taken its place"):
            call()
    world.dispatcher.process_ended(old, "was killed by SIGKILL")
    assert world.spawned == [old, new]
    assert world.state(job_id) == "created"
    assert world.dispatcher.slots.waits_for(job_id) == "slots: needs 2, has 0, no task manager is there"


def test_what_a_job_waits_for_is_told_by_who_knows_all_slots() -> None:
    world = World()
    job_id = world.submit()
    process = JobProcess(job_id, 1)
    connection = Connection()
    world.dispatcher.attach(process, connection)  # type: ignore[arg-type]
    connection.waits_for = "slots: needs 2 slots, 0 of 0 are free"
    world.dispatcher.require_slots(process, "tcp://127.0.0.1:1", 2, 0)
    expected = "slots: needs 2, has 0, no task manager is there"
    described = world.dispatcher.describe_job(job_id)
    assert isinstance(described, dict)
    assert described["waits_for"] == expected
    assert world.dispatcher.job_details(job_id).status.waits_for == expected
    assert world.dispatcher.watch_job(job_id).status.waits_for == expected
    connection.waits_for = None
    assert world.dispatcher.job_details(job_id).status.waits_for is None


def test_a_job_that_is_over_needs_no_slots_whatever_its_process_still_asks_for() -> None:
    world = World()
    process = JobProcess(world.submit(), 1)
    world.dispatcher.require_slots(process, "tcp://127.0.0.1:1", 2, 0)
    world.dispatcher.end_job(process, finished(process.job_id), None)
    world.dispatcher.require_slots(process, "tcp://127.0.0.1:1", 3, 0)  # of a rescaling that has waited in vain
    assert world.dispatcher.slots.waits_for(process.job_id) is None


def test_a_process_that_hangs_or_does_not_come_is_killed_and_replaced_when_it_has_ended() -> None:
    world = World()
    job_id = world.submit()
    silent, hung = JobProcess(job_id, 1), JobProcess(job_id, 2)
    world.dispatcher.process_started(silent, 77)
    world.timers.fire()
    assert (world.killed, world.spawned) == ([silent], [silent])
    world.dispatcher.process_ended(silent, "was killed by SIGKILL")
    world.dispatcher.process_started(hung, 78)
    connection = Connection()
    world.dispatcher.attach(hung, connection)  # type: ignore[arg-type]
    world.timers.fire()
    assert world.killed == [silent], "it has come"
    connection.close("no heartbeat for 50 s")
    assert (world.killed, world.spawned) == ([silent, hung], [silent, hung]), (
        "two processes of a job never run at a time"
    )


def test_a_process_that_hangs_is_not_waited_for_where_all_jobs_are_listed() -> None:
    world = World()
    job_id = world.submit()
    connection = Connection()
    world.dispatcher.attach(JobProcess(job_id, 1), connection)  # type: ignore[arg-type]
    jobs = DispatcherJobs(world.dispatcher)
    answered = _described(jobs)
    connection.is_silent = True
    assert _described(jobs) == answered, "what was known of it is told"
    assert connection.asked == [("describe", LIST_ANSWER_MS)] * 2, "once for each list, and not for long"
    connection.asked.clear()
    (job,) = jobs.jobs()
    with pytest.raises(ClusterError, match="did not answer"):
        job.details(within_ms=7)
    assert connection.asked == [("details", 7)]


def test_a_process_that_is_on_its_way_is_not_waited_for_where_all_jobs_are_listed() -> None:
    world = World()
    world.submit()
    (job,) = DispatcherJobs(world.dispatcher).jobs()
    assert job.describe()["state"] == "created"
    with pytest.raises(ClusterError, match="cannot be reached now"):
        job.details(within_ms=1)


def _described(jobs: DispatcherJobs) -> list[Mapping[str, Json]]:
    return [job.describe() for job in jobs.jobs()]


@pytest.mark.parametrize("is_closing", [True, False])
def test_a_job_whose_process_dies_as_the_cluster_ends_goes_on_in_the_next_one(tmp_path: Path, is_closing: bool) -> None:
    store = JobStore(resolve(str(tmp_path)))
    world = World(store)
    process = JobProcess(world.submit(), 1)
    if is_closing:
        world.dispatcher.close()
    world.is_gone = True
    world.dispatcher.process_ended(process, "was killed by SIGKILL")
    again = World(store)
    again.dispatcher.recover()
    assert (again.state(process.job_id), again.spawned) == ("created", [process])
