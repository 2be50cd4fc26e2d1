"""Random lives of a session cluster: processes of jobs die or hang, task managers come and go, one dispatcher takes the place of another.

The dispatcher, its store and its slots are the real ones; processes are values of the test. Whatever happens, a job that was accepted
runs in one process at a time until it has ended with a result or a reason, in this dispatcher or the next.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowrun.core.record import record
from flowrun.errors import ClusterError, FencingError
from flowrun.runners.session.dispatcher import MOST_LOSSES, Dispatcher
from flowrun.runners.session.job_store import JobStore
from flowrun.runners.session.messages import JobProcess, JobSubmission
from flowrun.runtime.cluster.session_messages import TaskManagerRegistration, WorkerAssignment
from flowrun.runtime.cluster.session_slots import SessionSlots
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.error_values import error_from_value
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.state_path import resolve
from tests.examples import examples
from tests.runtime.cluster.test_session_slots import Timers

PICK = st.integers(0, 99)


class Connection:
    """A connection of the dispatcher to another process."""

    def __init__(self, target: object) -> None:
        self.target = target
        self._listeners: list[Callable[[str], None]] = []

    def gateway(self, *_: object, **__: object) -> object:
        return self.target

    def on_close(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def end(self, reason: str) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(reason)


class Process:
    """A job manager process, as the dispatcher reaches it."""

    def __init__(self, name: JobProcess) -> None:
        self.name = name
        self.connection = Connection(self)
        self.is_attached = self.is_alive = self.has_ended = self.is_killed = False
        self.place = f"tcp://127.0.0.1:{name.job_id}-{name.attempt}"

    def watch(self) -> JobProgress:
        if not self.is_alive:
            raise ClusterError("it is gone")
        return JobProgress(JobStatus(self.name.job_id, "p", JobState.RUNNING, 1, 2, ()))


class Manager:
    """A task manager: remembers which workers live in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection = Connection(self)
        self.workers: dict[str, WorkerAssignment] = {}
        self.forgotten: set[str] = set()
        """Addresses of job managers whose files are deleted."""

    def forget_job_manager(self, job_manager: str) -> None:
        self.forgotten.add(job_manager)

    def start_worker(self, assignment: WorkerAssignment) -> None:
        assert assignment.worker not in self.workers
        self.workers[assignment.worker] = assignment


@record(eq=False)
class Cluster:
    """One dispatcher and what starts processes for it."""

    world: Life
    timers: Timers

    def spawn(self, name: str) -> None:
        process = Process(JobProcess.named(name))
        job_id = process.name.job_id
        assert self.world.ended.get(job_id) is None, "a process is started for a job that is over"
        assert not any(p.name.job_id == job_id and p.is_alive for p in self.world.processes), "a job runs twice"
        process.is_alive = True
        self.world.processes.append(process)

    def kill(self, name: str) -> None:
        for process in self.world.processes:
            if str(process.name) == name and process.is_alive:
                process.is_killed = True


class Life(RuleBasedStateMachine):
    """Jobs, processes, task managers, and dispatchers one after the other."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.processes: list[Process] = []
        self.managers: list[tuple[Manager, object]] = []
        self.accepted: list[str] = []
        self.secret: set[str] = set()
        self.ended: dict[str, JobProgress] = {}
        """What is known of those that are over: it never changes again."""
        self.taken_over: set[str] = set()
        self.numbers = itertools.count(1)
        self.lead()

    def lead(self) -> None:
        timers = Timers()
        self.timers = timers
        store = JobStore(resolve(str(self.folder)))
        self.dispatcher = Dispatcher(SessionSlots(timers), Cluster(self, timers), timers, store)
        self.dispatcher.recover()

    def pick(self, pick: int, holds: Callable[[Process], bool]) -> Process | None:
        found = [p for p in self.processes if holds(p)]
        return found[pick % len(found)] if found else None

    # ---- clients

    @rule(withheld=st.sampled_from([(), (), (), ("PASSWORD",)]))
    def submit(self, withheld: tuple[str, ...]) -> None:
        text = JobText(PipelineText("p.yaml", "name: p", "/there", withheld=withheld), dict.fromkeys(withheld, "x"))
        job_id = self.dispatcher.submit(JobSubmission("p", text, "f" * 64), lambda _: b"")
        self.accepted.append(job_id)
        if withheld:
            self.secret.add(job_id)

    # ---- processes of jobs

    @rule(pick=PICK)
    def attach(self, pick: int) -> None:
        process = self.pick(pick, lambda p: p.is_alive and not p.is_attached)
        if process is not None:
            self.dispatcher.process_started(process.name, 77)
            self.dispatcher.attach(process.name, process.connection)  # type: ignore[arg-type]
            process.is_attached = True
            order = self.dispatcher.fetch_job(process.name)
            has_run = any(p.name.job_id == process.name.job_id for p in self.processes if p is not process)
            assert (order.since_ms is not None) == (has_run or process.name.job_id in self.taken_over), (
                "rows would count twice"
            )

    @rule(pick=PICK, slots=st.integers(1, 4), checkpoint=st.integers(0, 3))
    def require(self, pick: int, slots: int, checkpoint: int) -> None:
        process = self.pick(pick, lambda p: p.is_alive and p.is_attached)
        if process is not None:
            self.dispatcher.require_slots(process.name, process.place, slots, checkpoint)

    @rule(pick=PICK)
    def rescale(self, pick: int) -> None:
        process = self.pick(pick, lambda p: p.is_alive and p.is_attached)
        if process is not None and process.name.job_id not in self.secret:
            text = JobText(PipelineText("p.yaml", "name: p", "/there", overrides={"p": "4"}))
            self.dispatcher.rescale_job(process.name, text, "e" * 64)

    @rule(pick=PICK, fails=st.booleans())
    def end(self, pick: int, fails: bool) -> None:
        process = self.pick(pick, lambda p: p.is_alive and p.is_attached and not p.has_ended)
        if process is not None:
            state = JobState.FAILED if fails else JobState.FINISHED
            result = JobResult("x", "p", state, 1.0, (), {})
            last = JobProgress(JobStatus("x", "p", state, 1, 2, ()), result)
            assert self.dispatcher.end_job(process.name, last, None)
            process.has_ended = True

    @rule(pick=PICK, connection_first=st.booleans())
    def die(self, pick: int, connection_first: bool) -> None:
        process = self.pick(pick, lambda p: p.is_alive)
        if process is not None:
            self.bury(process, connection_first)

    def bury(self, process: Process, connection_first: bool = True) -> None:
        """Its end is told by its connection and by its parent, in any order."""
        if connection_first and process.is_attached:
            process.connection.end("the other side closed it")
        process.is_alive = False
        self.end_workers(lambda a: a.job_manager == process.place)
        self.dispatcher.process_ended(process.name, "was killed by SIGKILL")
        process.connection.end("the other side closed it")

    @rule(pick=PICK)
    def hang(self, pick: int) -> None:
        """Its heartbeats stop: the dispatcher has it killed."""
        process = self.pick(pick, lambda p: p.is_alive and p.is_attached)
        if process is not None:
            process.connection.end("no heartbeat for 50 s")
            assert process.is_killed

    @rule()
    def reap(self) -> None:
        for process in [p for p in self.processes if p.is_killed and p.is_alive]:
            self.bury(process)

    @rule(pick=PICK)
    def speak_late(self, pick: int) -> None:
        """What a process had said is heard when another one has taken its place: it is refused, and changes nothing."""
        old = self.pick(pick, self.is_replaced)
        if old is None:
            return
        text = JobText(PipelineText("p.yaml", "name: p", "/there"))
        last = JobProgress(
            JobStatus("x", "p", JobState.FINISHED, 1, 2, ()), JobResult("x", "p", JobState.FINISHED, 1.0, (), {})
        )
        calls: list[Callable[[], object]] = [
            lambda: self.dispatcher.attach(old.name, old.connection),  # type: ignore[arg-type]
            lambda: self.dispatcher.require_slots(old.name, old.place, 4, 3),
            lambda: self.dispatcher.rescale_job(old.name, text, "e" * 64),
            lambda: self.dispatcher.end_job(old.name, last, None),
        ]
        for call in calls:
            with pytest.raises(FencingError):
                call()
        self.dispatcher.process_ended(old.name, "was killed by SIGKILL")

    def is_replaced(self, process: Process) -> bool:
        return not process.is_alive and any(
            p.name.job_id == process.name.job_id and p.name.attempt > process.name.attempt for p in self.processes
        )

    # ---- task managers

    @rule(slots=st.integers(1, 4))
    def join(self, slots: int) -> None:
        self.add_manager(Manager(f"m{next(self.numbers)}"), slots)

    @precondition(lambda self: self.managers)
    @rule(pick=PICK, slots=st.integers(1, 4))
    def join_again(self, pick: int, slots: int) -> None:
        """Under the name of one whose end was not noticed yet."""
        before, _ = self.managers.pop(pick % len(self.managers))
        self.add_manager(Manager(before.name), slots)
        before.connection.end("no heartbeat for 50 s")

    def add_manager(self, manager: Manager, slots: int) -> None:
        registration = TaskManagerRegistration(manager.name, 1, "here", slots)
        added = self.dispatcher.add_task_manager(registration, manager.connection)  # type: ignore[arg-type]
        self.managers.append((manager, added))

    @precondition(lambda self: self.managers)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        manager, _ = self.managers.pop(pick % len(self.managers))
        manager.connection.end("the other side closed it")

    @precondition(lambda self: self.managers)
    @rule(pick=PICK, failed=st.booleans())
    def end_worker(self, pick: int, failed: bool) -> None:
        manager, state = self.managers[pick % len(self.managers)]
        if manager.workers:
            worker = sorted(manager.workers)[pick % len(manager.workers)]
            del manager.workers[worker]
            self.dispatcher.slots.end_worker(state, worker, "is over", failed=failed)  # type: ignore[arg-type]

    def end_workers(self, of: Callable[[WorkerAssignment], bool]) -> None:
        """Those whose job manager is gone end."""
        for manager, state in self.managers:
            for worker in [w for w, a in manager.workers.items() if of(a)]:
                del manager.workers[worker]
                self.dispatcher.slots.end_worker(state, worker, "ended", failed=False)  # type: ignore[arg-type]

    @rule()
    def fire(self) -> None:
        """Workers that were started for a process that is gone end, too, and slots that rest are free again."""
        living = {p.place for p in self.processes if p.is_alive}
        self.end_workers(lambda a: a.job_manager not in living)
        self.timers.fire()

    # ---- dispatchers

    @rule(is_told=st.booleans())
    def take_over(self, is_told: bool) -> None:
        """The dispatcher ends, as it is told to or not, and the kernel ends its processes before the next one leads."""
        if is_told:
            self.dispatcher.close()
            for process in [p for p in self.processes if p.is_alive]:
                self.dispatcher.process_ended(process.name, "was killed by SIGKILL")
        for process in self.processes:
            process.is_alive = False
        self.managers.clear()
        self.processes = []
        self.taken_over.update(self.accepted)
        self.lead()

    # ---- what must hold

    @invariant()
    def every_job_that_was_accepted_runs_or_has_ended_with_a_reason(self) -> None:
        if not hasattr(self, "accepted"):
            return
        listed = {job.job_id for job in self.dispatcher.list_jobs()}
        assert listed == set(self.accepted)
        for job_id in self.accepted:
            job = self.dispatcher._jobs[job_id]
            if not job.is_over:
                assert [p for p in self.processes if p.is_alive and p.name == job.process], "nobody runs it"
                continue
            assert job.last.result is not None or job.last.failure is not None
            assert self.ended.setdefault(job_id, job.last) == job.last, "a job ends twice"
            assert self.dispatcher.slots.waits_for(job_id) is None, "a job that is over waits for slots"
            if job.last.failure is not None:
                said = str(error_from_value(job.last.failure))
                assert "as those before it did" in said or "so it cannot go on: PASSWORD" in said
            assert job.losses <= MOST_LOSSES + 1

    @invariant()
    def slots_are_given_once_to_jobs_that_run(self) -> None:
        if not hasattr(self, "managers"):
            return
        slots = self.dispatcher.slots
        assert set(slots._jobs) <= {p.name.job_id for p in self.processes if p.is_alive}
        for manager, state in self.managers:
            assert set(manager.workers) == set(state.workers)  # type: ignore[attr-defined]
            assert state.free >= 0  # type: ignore[attr-defined]
        for requirement in slots._jobs.values():
            given = sum(a.job_manager == requirement.job_manager for m, _ in self.managers for a in m.workers.values())
            assert given == requirement.workers, "workers are counted that are not there"

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)
        if not hasattr(self, "managers"):
            return
        self.folder.mkdir()
        for process in [p for p in self.processes if p.is_alive]:
            if not process.is_attached:
                self.dispatcher.attach(process.name, process.connection)  # type: ignore[arg-type]
                process.is_attached = True
            if process.name.job_id not in self.ended and not process.has_ended:
                status = JobStatus("x", "p", JobState.FINISHED, 1, 2, ())
                self.dispatcher.end_job(
                    process.name, JobProgress(status, JobResult("x", "p", JobState.FINISHED, 1.0, (), {})), None
                )
            self.bury(process)
        self.fire()
        for _, state in self.managers:
            assert state.free == state.registration.slots, "a slot does not come back"  # type: ignore[attr-defined]
        shutil.rmtree(self.folder)


class Everyday(Life):
    """A few of them."""


class Exhaustive(Life):
    """Many."""


Everyday.TestCase.settings = examples(10, stateful_step_count=30)
TestEveryday = Everyday.TestCase
Exhaustive.TestCase.settings = examples(100, stateful_step_count=50)
TestExhaustive = pytest.mark.exhaustive(Exhaustive.TestCase)
