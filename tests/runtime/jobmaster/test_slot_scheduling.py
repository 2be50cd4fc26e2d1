"""When a job gets its slots, what it does without them, and when it gives them back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.errors import NoResourceAvailableError, PartitionLostError
from flowrun.graph.execution_graph import ExecutionVertexId, build_execution_graph
from flowrun.graph.job_graph import JobGraph, ResultType
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner, RescalePartitioner
from flowrun.runtime.jobmaster.restart import FixedDelay, RestartStrategy
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.jobmaster.scheduler_events import (
    AnnounceRunning,
    AwaitHostFolder,
    AwaitSlotsFurther,
    CancelJob,
    CancelTask,
    Command,
    CommitResults,
    DeployTask,
    EndJob,
    Event,
    HostFolderFound,
    HostFolderLost,
    JobBroke,
    ReleasePartitions,
    ReleaseSlots,
    RequestSlots,
    RestartAt,
    RestartDue,
    RestoreState,
    ResultsCommitted,
    SlotRequestTimedOut,
    StartJob,
    StateRestored,
    StopSnapshotCompleted,
    WithdrawSlotRequest,
    WorkerLost,
)
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.messages import TaskFailure, TaskUpdate
from flowrun.runtime.slot_messages import SlotRequestBulk, SlotsGranted, SlotsPending, SlotsRefused
from flowrun.runtime.slot_pool import SlotPool
from tests.examples import examples
from tests.job_graphs import Edge, Vertex, job_graph
from tests.slot_grants import granted

S = ExecutionState
BLOCKING = ResultType.BLOCKING
STREAM = [Vertex("source", 2), Vertex("sink", 1)], [Edge("source", "sink", RebalancePartitioner())]
STAGES = [Vertex("a", 2), Vertex("b", 1)], [Edge("a", "b", RebalancePartitioner(), type=BLOCKING)]
"""Three units: a_0 and a_1, which b_0 waits for."""


class Story:
    """One scheduler, told what happens."""

    def __init__(self, shape: tuple[Sequence[Vertex], Sequence[Edge]], strategy: RestartStrategy | None = None) -> None:
        self.scheduler = Scheduler(build_execution_graph(job_graph(*shape)), "job", 0, strategy)

    def handle(self, event: Event) -> list[Command]:
        return self.scheduler.handle(event, 0)

    def grant(self, *requests: Command) -> list[str]:
        """Give what was asked for; who is deployed."""
        deployed = []
        for request in requests:
            assert isinstance(request, RequestSlots)
            for command in self.handle(granted(request)):
                assert isinstance(command, DeployTask)
                assert self.scheduler.begin_deployment(command.vertex, 0)
                deployed.append(str(command.vertex))
        return deployed

    def tell(self, name: str, *states: S, error: BaseException | None = None) -> list[Command]:
        """The last answer."""
        vertex, subtask = name.rsplit("_", 1)
        vertex_id = ExecutionVertexId(vertex, int(subtask))
        execution = self.scheduler.executions.current(vertex_id)
        answer: list[Command] = []
        for state in states:
            failure = None if error is None else TaskFailure(error)
            answer = self.handle(TaskUpdate(vertex_id, execution.attempt_id, state, failure))
        return answer

    def states(self) -> str:
        return " ".join(e.state.value for e in self.scheduler.executions)


UP = (S.INITIALIZING, S.RUNNING)


def test_a_streaming_job_asks_for_all_its_slots_and_waits_without_a_task() -> None:
    story = Story(STREAM)
    (request,) = story.handle(StartJob())
    assert isinstance(request, RequestSlots)
    assert [r.name for r in request.requests] == ["default/1", "default/2"]
    assert story.scheduler.state is JobState.CREATED
    assert story.states() == "scheduled scheduled scheduled"
    assert story.handle(SlotsPending("job", request.number, 2, 0, 2, "needs 2 slots")) == []
    assert story.scheduler.slots.pending is not None
    assert story.grant(request) == ["source_0", "source_1", "sink_0"]
    assert story.scheduler.state is JobState.RUNNING
    assert story.scheduler.slots.pending is None
    assert story.scheduler.slots.held == 2


def test_a_job_that_can_never_fit_fails_at_once() -> None:
    story = Story(STREAM)
    (request,) = story.handle(StartJob())
    assert isinstance(request, RequestSlots)
    refused = SlotsRefused("job", request.number, "needs 2 slots, there are 1", "give the cluster 2 slots")
    assert story.handle(refused) == [EndJob(JobState.FAILED)]
    error = story.scheduler.failures[0].failure.error
    assert isinstance(error, NoResourceAvailableError)
    assert error.message == "job 'job' needs 2 slots, there are 1"
    assert error.hint == "give the cluster 2 slots"


def test_a_job_that_waited_long_enough_fails_with_what_it_waited_for_even_if_it_would_be_restarted() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    (request,) = story.handle(StartJob())
    assert isinstance(request, RequestSlots)
    story.handle(SlotsPending("job", request.number, 2, 1, 2, "needs 2 slots, 1 of 2 are free (held by 'other' 1)"))
    timed_out = SlotRequestTimedOut(request.number, "300 s")
    assert story.handle(timed_out) == [WithdrawSlotRequest(request.number), EndJob(JobState.FAILED)]
    message = str(story.scheduler.failures[0].failure.error)
    assert "needs 2 slots, 1 of 2 are free (held by 'other' 1); it waited 300 s" in message
    assert "give the cluster more slots" in message


def test_a_time_out_that_crossed_the_grant_is_nothing() -> None:
    story = Story(STREAM)
    (request,) = story.handle(StartJob())
    story.grant(request)
    assert isinstance(request, RequestSlots)
    assert story.handle(SlotRequestTimedOut(request.number, "300 s")) == []
    assert story.handle(SlotsPending("job", request.number, 2, 0, 2, "of before")) == []
    assert story.scheduler.slots.pending is None


def test_a_job_that_waits_can_be_cancelled_and_a_grant_that_crossed_is_nothing() -> None:
    story = Story(STREAM)
    (request,) = story.handle(StartJob())
    assert isinstance(request, RequestSlots)
    assert story.handle(CancelJob()) == [WithdrawSlotRequest(request.number), EndJob(JobState.CANCELED)]
    assert story.handle(granted(request)) == []


def test_a_streaming_job_keeps_its_slots_while_it_is_restarted_and_until_its_end() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    story.grant(*story.handle(StartJob()))
    for name in ("source_0", "source_1", "sink_0"):
        story.tell(name, *UP)
    story.tell("source_0", S.FINISHED)
    assert story.scheduler.slots.held == 2
    story.tell("source_1", S.FAILED, error=OSError("broke"))
    assert story.tell("sink_0", S.CANCELED) == [RestartAt(0, 1)]
    (restore,) = story.handle(RestartDue(1))
    assert isinstance(restore, RestoreState)
    again = story.handle(StateRestored(1))
    assert [type(c) for c in again] == [DeployTask] * 3, "without asking for slots"
    assert story.scheduler.slots.held == 2


def test_stages_ask_for_slots_when_their_input_is_complete_and_give_them_back_when_they_are_done() -> None:
    story = Story(STAGES)
    first, second = story.handle(StartJob())
    assert story.states() == "scheduled scheduled created"
    assert story.grant(first) == ["a_0"]
    assert [type(c) for c in story.tell("a_0", *UP, S.FINISHED)] == [ReleaseSlots]
    assert story.scheduler.slots.held == 0
    assert story.grant(second) == ["a_1"]
    released, request = story.tell("a_1", *UP, S.FINISHED)
    assert isinstance(released, ReleaseSlots)
    assert story.grant(request) == ["b_0"]
    story.tell("b_0", *UP)
    *released, commit = story.tell("b_0", S.FINISHED)
    assert [type(c) for c in released] == [ReleasePartitions, ReleaseSlots]
    assert commit == CommitResults()


def test_a_stage_waits_without_limit_for_slots_of_other_stages_of_its_job() -> None:
    story = Story(STAGES)
    first, second = story.handle(StartJob())
    assert isinstance(second, RequestSlots)
    story.grant(first)
    timed_out = SlotRequestTimedOut(second.number, "300 s")
    assert story.handle(timed_out) == [AwaitSlotsFurther(second.number)]
    story.tell("a_0", *UP, S.FINISHED)
    assert EndJob(JobState.FAILED) in story.handle(timed_out), "the job itself has none now, and others do not give any"


def test_a_stage_that_fails_keeps_its_slot_and_is_deployed_again_alone() -> None:
    story = Story(STAGES, FixedDelay(attempts=3, delay_ms=0))
    for request in story.handle(StartJob()):
        story.grant(request)
    story.tell("a_0", *UP, S.FINISHED)
    _, request = story.tell("a_1", *UP, S.FINISHED)
    story.grant(request)
    story.tell("b_0", *UP)
    assert story.tell("b_0", S.FAILED, error=OSError("broke"))[-1] == RestartAt(0, 1)
    story.handle(RestartDue(1))
    (again,) = story.handle(StateRestored(1))
    assert isinstance(again, DeployTask)
    assert story.scheduler.state is JobState.RESTARTING
    assert story.scheduler.begin_deployment(again.vertex, 0)
    assert story.tell("b_0", *UP) == [AnnounceRunning()]
    assert story.scheduler.state is JobState.RUNNING


def test_a_stage_that_waits_for_slots_and_must_wait_for_its_input_again_waits_for_slots_no_more() -> None:
    shape = (
        [Vertex("a"), Vertex("b"), Vertex("c")],
        [
            Edge("a", "b", RebalancePartitioner(), type=BLOCKING),
            Edge("b", "c", RebalancePartitioner(), type=BLOCKING),
        ],
    )
    story = Story(shape, FixedDelay(attempts=3, delay_ms=0))
    story.grant(*story.handle(StartJob()))
    _, request = story.tell("a_0", *UP, S.FINISHED)
    assert isinstance(request, RequestSlots)
    commands = story.handle(JobBroke(OSError("no disk")))
    assert WithdrawSlotRequest(request.number) in commands
    assert commands[-1] == RestartAt(0, 1)
    story.handle(RestartDue(1))
    released, again = story.handle(StateRestored(1))
    assert isinstance(released, ReleasePartitions)
    assert [p.attempt_id[-2:] for p in released.partitions] == ["_0"], "what the first attempt wrote"
    assert story.states() == "scheduled created created"
    assert story.grant(again) == ["a_0"]
    story.tell("a_0", *UP)
    assert story.scheduler.state is JobState.RUNNING, "all runs that can"


def test_a_stage_whose_input_is_produced_again_gives_back_its_slots_meanwhile() -> None:
    story = Story(([Vertex("a"), Vertex("b")], STAGES[1]), FixedDelay(attempts=3, delay_ms=0))
    story.grant(*story.handle(StartJob()))
    story.grant(story.tell("a_0", *UP, S.FINISHED)[1])
    story.tell("b_0", *UP)
    story.handle(JobBroke(OSError("no disk")))
    story.tell("b_0", S.CANCELED)
    story.handle(RestartDue(1))
    _, request, released = story.handle(StateRestored(1))
    assert isinstance(released, ReleaseSlots)
    assert story.grant(request) == ["a_0"]


# ---- workers that are lost


def on_workers(request: Command, *workers: str) -> SlotsGranted:
    """The slots that are asked for, each on a worker of its own."""
    assert isinstance(request, RequestSlots)
    given = granted(request)
    return replace(given, slots=tuple(replace(s, worker=w) for s, w in zip(given.slots, workers, strict=True)))


def deploy(story: Story, commands: Sequence[Command]) -> list[str]:
    """Begin every deployment; who is deployed."""
    deployed = []
    for command in commands:
        assert isinstance(command, DeployTask)
        assert story.scheduler.begin_deployment(command.vertex, 0)
        deployed.append(str(command.vertex))
    return deployed


def test_a_worker_that_is_lost_after_the_snapshot_of_a_stop_costs_nothing() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w2")))
    for name in ("source_0", "source_1", "sink_0"):
        story.tell(name, *UP)
    story.handle(StopSnapshotCompleted())
    assert story.handle(WorkerLost("w2", "worker w2 was killed by SIGKILL")) == []
    assert story.states() == "running finished running"
    story.tell("source_0", S.FINISHED)
    assert story.tell("sink_0", S.FINISHED) == [CommitResults()]
    assert story.scheduler.failures == []


def test_what_ran_on_a_lost_worker_is_restarted_and_all_slots_are_asked_for_again() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w2")))
    for name in ("source_0", "source_1", "sink_0"):
        story.tell(name, *UP)
    commands = story.handle(WorkerLost("w2", "worker w2 was killed by SIGKILL"))
    assert story.scheduler.state is JobState.RESTARTING
    assert {c.attempt_id.split("_")[1] for c in commands if isinstance(c, CancelTask)} == {"source", "sink"}
    assert story.scheduler.slots.held == 1
    assert story.states() == "canceling failed canceling"
    story.tell("source_0", S.CANCELED)
    story.tell("sink_0", S.CANCELED)
    assert story.scheduler.last_failure is not None
    assert "worker w2 was killed by SIGKILL" in story.scheduler.last_failure
    story.handle(RestartDue(1))
    (again,) = story.handle(StateRestored(1))
    assert isinstance(again, RequestSlots)
    assert [r.name for r in again.requests] == ["default/1", "default/2"]
    assert again.instead_of == ("1_default/1",), "who waits holds nothing"
    assert story.scheduler.slots.held == 0
    assert deploy(story, story.handle(on_workers(again, "w1", "w3"))) == ["source_0", "source_1", "sink_0"]
    assert story.handle(WorkerLost("w2", "again")) == [], "nothing is there any more"


def test_a_lost_slot_is_not_waited_for_without_limit_because_of_what_the_job_kept_beside_it() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w2")))
    story.handle(WorkerLost("w2", "gone"))
    for name in ("source_0", "sink_0"):
        story.tell(name, S.CANCELED)
    story.handle(RestartDue(1))
    (again,) = story.handle(StateRestored(1))
    assert isinstance(again, RequestSlots)
    (withdrawn, *_) = story.handle(SlotRequestTimedOut(again.number, "300 s"))
    assert withdrawn == WithdrawSlotRequest(again.number)
    assert "it waited 300 s" in (story.scheduler.last_failure or "")


def test_a_job_that_will_never_have_its_slots_again_is_not_restarted() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w2")))
    story.handle(WorkerLost("w2", "gone"))
    for name in ("source_0", "sink_0"):
        story.tell(name, S.CANCELED)
    story.handle(RestartDue(1))
    (again,) = story.handle(StateRestored(1))
    assert isinstance(again, RequestSlots)
    refused = SlotsRefused("job", again.number, "needs 2 slots, there are 1", "give the cluster 2 slots")
    assert EndJob(JobState.FAILED) in story.handle(refused)
    assert story.scheduler.restarts == 1


def test_a_worker_that_is_lost_while_others_are_waited_for_changes_nothing() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w2")))
    story.handle(WorkerLost("w2", "gone"))
    for name in ("source_0", "sink_0"):
        story.tell(name, S.CANCELED)
    story.handle(RestartDue(1))
    (again,) = story.handle(StateRestored(1))
    assert story.handle(WorkerLost("w1", "gone, too")) == [], "nothing ran there"
    assert len(deploy(story, story.handle(on_workers(again, "w3", "w4")))) == 3
    assert {e.worker for e in story.scheduler.executions} == {"w3", "w4"}


def test_a_lost_worker_ends_a_job_that_is_not_to_be_restarted() -> None:
    story = Story(STREAM)
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w2")))
    story.handle(WorkerLost("w1", "worker w1 was killed by SIGKILL"))
    assert story.scheduler.state is JobState.FAILING
    assert story.tell("source_1", S.CANCELED) == [EndJob(JobState.FAILED)]
    assert str(story.scheduler.failures[0].failure.error) == "worker w1 was killed by SIGKILL"


def test_a_cancelled_job_does_not_wait_for_a_worker_that_is_gone() -> None:
    story = Story(STREAM)
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w1")))
    story.handle(CancelJob())
    assert story.handle(WorkerLost("w1", "gone")) == [EndJob(JobState.CANCELED)]


def test_a_complete_partition_on_a_lost_worker_is_written_again_before_it_is_read() -> None:
    story = Story(STAGES, FixedDelay(attempts=3, delay_ms=0))
    requests = story.handle(StartJob())
    for request, worker in zip(requests, ("w1", "w2"), strict=True):
        deploy(story, story.handle(on_workers(request, worker)))
    story.tell("a_0", *UP, S.FINISHED)
    reading = [c for c in story.tell("a_1", *UP, S.FINISHED) if isinstance(c, RequestSlots)]
    deploy(story, story.handle(on_workers(reading[0], "w1")))
    story.tell("b_0", *UP)
    commands = story.handle(WorkerLost("w2", "gone"))
    assert [c for c in commands if isinstance(c, CancelTask)], "b_0 reads what is gone"
    story.tell("b_0", S.CANCELED)
    story.handle(RestartDue(1))
    asked = [c for c in story.handle(StateRestored(1)) if isinstance(c, RequestSlots)]
    again = [name for request in asked for name in deploy(story, story.handle(on_workers(request, "w3")))]
    assert again == ["a_0", "a_1"], "both are of one source"


# ---- several jobs on one pool


class World:
    """Random jobs that share a pool; their tasks advance, fail and end in any order."""

    def __init__(self, graphs: Sequence[JobGraph], slots: int | None, choices: random.Random) -> None:
        self.pool = SlotPool("local", slots)
        self.choices = choices
        self.tasks: dict[tuple[str, str], tuple[ExecutionVertexId, S]] = {}
        """(job, attempt) → subtask and what it really is at; only living ones."""
        self.cancelled: set[tuple[str, str]] = set()
        self.wanted: list[tuple[str, Event]] = []
        self.ended: dict[str, JobState] = {}
        self.order: list[str] = []
        """Jobs in the order in which they got their first slots."""
        self.graphs = {f"job{number}": build_execution_graph(graph) for number, graph in enumerate(graphs)}
        self.schedulers = {j: Scheduler(g, j, 0, FixedDelay(attempts=1000, delay_ms=0)) for j, g in self.graphs.items()}

    def send(self, job: str, event: Event) -> None:
        for command in self.schedulers[job].handle(event, 0):
            self.carry_out(job, command)

    def carry_out(self, job: str, command: Command) -> None:
        match command:
            case RequestSlots(number=number, requests=requests):
                self.hear(self.pool.request(SlotRequestBulk(job, job, number, requests)))
            case WithdrawSlotRequest(number=number):
                self.hear(self.pool.withdraw(job, number))
            case ReleaseSlots(allocation_ids=allocations):
                self.hear(self.pool.release(job, allocations))
            case DeployTask(vertex=vertex, attempt_id=attempt):
                if self.schedulers[job].begin_deployment(vertex, 0):
                    self.tasks[job, attempt] = (vertex, S.DEPLOYING)
            case CancelTask(attempt_id=attempt):
                self.cancelled.add((job, attempt))
            case RestartAt(round=number):
                self.wanted.append((job, RestartDue(number)))
            case RestoreState(round=number):
                self.wanted.append((job, StateRestored(number)))
            case CommitResults():
                self.wanted.append((job, ResultsCommitted()))
            case EndJob(state=state):
                self.ended[job] = state
                self.hear(self.pool.leave(job))

    def hear(self, answers: Sequence[SlotsGranted | SlotsPending | SlotsRefused]) -> None:
        for answer in answers:
            if isinstance(answer, SlotsGranted) and answer.job_id not in self.order:
                self.order.append(answer.job_id)
            self.wanted.append((answer.job_id, answer))

    def check(self) -> None:
        """Every task has a slot of its job, and shares it as the rules allow."""
        held = {slot.allocation_id for slot in self.pool.held.values()}
        members: dict[str, list[tuple[str, ExecutionVertexId]]] = {}
        co_located: dict[tuple[str, str, int], set[str]] = {}
        for (job, _), (vertex, _) in self.tasks.items():
            slot = self.schedulers[job].slots.slot_of(vertex)
            assert slot is not None
            assert slot.allocation_id in held, "the pool knows of it"
            members.setdefault(slot.allocation_id, []).append((job, vertex))
            about = self.graphs[job].vertex(vertex).job_vertex
            assert slot.name.split("/")[0] == about.slot_sharing_group
            if about.co_location_key is not None:
                co_located.setdefault((job, about.co_location_key, vertex.subtask), set()).add(slot.allocation_id)
        for inside in members.values():
            assert len({job for job, _ in inside}) == 1, "a slot is one job's"
            assert max(Counter(vertex.vertex_id for _, vertex in inside).values()) == 1
        assert all(len(places) == 1 for places in co_located.values())
        assert len({slot.index for slot in self.pool.held.values()}) == len(held)

    def step(self, fails: float) -> None:
        """One thing happens."""
        keys = sorted(self.tasks)
        if self.wanted and (not keys or self.choices.random() < 0.5):
            # messages of one job keep their order
            jobs = list(dict.fromkeys(job for job, _ in self.wanted))
            job = self.choices.choice(jobs)
            position = next(i for i, (j, _) in enumerate(self.wanted) if j == job)
            return self.send(*self.wanted.pop(position))
        if not keys:
            return None
        key = self.choices.choice(keys)
        vertex, state = self.tasks[key]
        if key in self.cancelled:
            target = S.CANCELED
        elif self.choices.random() < fails:
            target = S.FAILED
        else:
            target = {S.DEPLOYING: S.INITIALIZING, S.INITIALIZING: S.RUNNING, S.RUNNING: S.FINISHED}[state]
        failure = TaskFailure(OSError(f"broke {self.choices.random()}")) if target is S.FAILED else None
        if target in (S.CANCELED, S.FAILED, S.FINISHED):
            del self.tasks[key]
        else:
            self.tasks[key] = (vertex, target)
        return self.send(key[0], TaskUpdate(vertex, key[1], target, failure))


@st.composite
def graphs(draw: st.DrawFn, name: str = "job") -> JobGraph:
    vertices = [
        Vertex(
            f"v{i}",
            parallelism := draw(st.integers(1, 3)),
            group := draw(st.sampled_from(["default", "other"])),
            draw(st.sampled_from([None, None, f"k{parallelism}{group}"])),
        )
        for i in range(draw(st.integers(1, 5)))
    ]
    blocking = draw(st.booleans())
    edges = []
    for target in range(1, len(vertices)):
        for source in draw(st.sets(st.integers(0, target - 1), max_size=2)):
            equal = vertices[source].parallelism == vertices[target].parallelism
            choices = [RebalancePartitioner(), RescalePartitioner(), *([ForwardPartitioner()] if equal else [])]
            kinds = [ResultType.PIPELINED, BLOCKING] if blocking else [ResultType.PIPELINED]
            edges.append(
                Edge(f"v{source}", f"v{target}", draw(st.sampled_from(choices)), type=draw(st.sampled_from(kinds)))
            )
    return job_graph(vertices, edges)


@examples(30)
@given(st.lists(graphs(), min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 10**6))
def test_jobs_that_share_slots_all_come_to_their_end(jobs: list[JobGraph], slots: int, seed: int) -> None:
    world = World(jobs, slots, random.Random(seed))
    for job in world.schedulers:
        world.send(job, StartJob())
    for count in range(20_000):
        if len(world.ended) == len(jobs) and not world.wanted:
            break
        if count == 60 and seed % 3 == 0:
            world.send("job0", CancelJob())
        world.step(fails=0.05 if count < 300 else 0)
        world.check()
    assert world.ended.keys() == world.schedulers.keys(), "nobody waits for ever"
    assert world.tasks == {}
    assert world.pool.held == {}, "all slots are free"
    assert world.pool.waiting == ()
    for job, state in world.ended.items():
        needed = max(len(unit.slots) for unit in world.schedulers[job].slots.units)
        lacks = [isinstance(f.failure.error, NoResourceAvailableError) for f in world.schedulers[job].failures]
        assert state is not JobState.FAILED or (needed > slots and any(lacks)), "only what cannot fit fails"


@pytest.mark.parametrize("seed", range(5))
def test_slots_are_given_in_the_order_of_the_jobs_whatever_fails_meanwhile(seed: int) -> None:
    shape = [Vertex("source", 2), Vertex("sink", 2)], [Edge("source", "sink", RebalancePartitioner())]
    world = World([job_graph(*shape) for _ in range(5)], 2, random.Random(seed))
    for job in world.schedulers:
        world.send(job, StartJob())
    for _ in range(20_000):
        if len(world.ended) == 5:
            break
        world.step(fails=0.02)
        world.check()
    assert world.order == ["job0", "job1", "job2", "job3", "job4"]
    assert set(world.ended.values()) == {JobState.FINISHED}


def test_what_a_lost_worker_still_says_does_not_count() -> None:
    story = Story(STREAM, FixedDelay(attempts=3, delay_ms=0))
    (request,) = story.handle(StartJob())
    deploy(story, story.handle(on_workers(request, "w1", "w2")))
    story.handle(WorkerLost("w2", "it hung"))
    late = story.scheduler.executions.current(ExecutionVertexId("source", 1))
    for state in (*UP, S.FINISHED):
        assert story.handle(TaskUpdate(late.vertex, late.attempt_id, state)) == []
    assert story.states() == "canceling failed canceling"


def reading_story() -> Story:
    """a_0 on w1 and a_1 on w2 have finished; b_0 reads both on w1. Both workers have folders that outlive them."""
    story = Story(STAGES, FixedDelay(attempts=3, delay_ms=0))
    for request, worker in zip(story.handle(StartJob()), ("w1", "w2"), strict=True):
        deploy(story, story.handle(on_workers(request, worker)))
    story.tell("a_0", *UP, S.FINISHED)
    reading = [c for c in story.tell("a_1", *UP, S.FINISHED) if isinstance(c, RequestSlots)]
    deploy(story, story.handle(on_workers(reading[0], "w1")))
    story.tell("b_0", *UP)
    return story


def restarted(story: Story) -> list[str]:
    """The subtasks that are deployed when a round is over, all on one worker."""
    story.handle(RestartDue(story.scheduler._round))
    commands = story.handle(StateRestored(story.scheduler._round))
    requests = [c for c in commands if isinstance(c, RequestSlots)]
    return [name for r in requests for name in deploy(story, story.handle(on_workers(r, *["w3"] * len(r.requests))))]


def test_a_complete_partition_that_outlives_its_worker_is_read_where_it_is() -> None:
    story = reading_story()
    assert story.handle(WorkerLost("w2", "gone", "host", is_reached=True)) == [], "b_0 goes on"
    story.handle(WorkerLost("w1", "gone", "host", is_reached=True))
    assert story.scheduler.state is JobState.RESTARTING
    assert restarted(story) == ["b_0"]


def test_a_stage_waits_until_somebody_reads_again_what_a_lost_worker_has_left() -> None:
    story = reading_story()
    commands = story.handle(WorkerLost("w1", "gone", "host", is_reached=False))
    assert AwaitHostFolder("host") in commands
    assert restarted(story) == []
    assert story.states().split()[-1] == "created"
    assert story.handle(HostFolderFound("another")) == []
    (request,) = story.handle(HostFolderFound("host"))
    assert deploy(story, story.handle(on_workers(request, "w3"))) == ["b_0"]
    assert story.handle(HostFolderLost("host")) == [], "it was found"


def test_what_a_lost_host_had_is_written_again() -> None:
    story = reading_story()
    story.handle(WorkerLost("w1", "worker w1 was killed", "host", is_reached=False))
    assert restarted(story) == []
    commands = story.handle(HostFolderLost("host"))
    assert any(isinstance(c, RestartAt) for c in commands)
    assert story.scheduler.last_failure is not None
    assert "worker w1 was killed; what it had written could not be read any more" in story.scheduler.last_failure
    assert "a_0" in restarted(story)


def test_a_lost_host_of_which_everything_was_read_costs_nothing() -> None:
    story = reading_story()
    story.tell("b_0", S.FINISHED)
    assert story.handle(WorkerLost("w2", "gone", "host", is_reached=False)) == [AwaitHostFolder("host")]
    assert story.handle(HostFolderLost("host")) == []


def test_all_partitions_that_are_found_lost_while_a_round_begins_are_written_again_in_it() -> None:
    shape = (
        [Vertex("a", 2), Vertex("b", 2)],
        [Edge("a", "b", RebalancePartitioner(), type=BLOCKING)],
    )
    story = Story(shape, FixedDelay(attempts=1, delay_ms=0))
    for request in story.handle(StartJob()):
        deploy(story, story.handle(on_workers(request, "w1")))
    requests = [c for n in ("a_0", "a_1") for c in story.tell(n, *UP, S.FINISHED) if isinstance(c, RequestSlots)]
    for request in requests:
        deploy(story, story.handle(on_workers(request, "w1")))
    for name in ("b_0", "b_1"):
        story.tell(name, *UP)
    (data_set,) = {p.data_set_id for p in story.scheduler._stages._complete}
    for subtask in (0, 1):
        reader = story.scheduler.executions.current(ExecutionVertexId("b", subtask))
        lost = PartitionLostError("gone", data_set_id=data_set, subtask=subtask)
        story.handle(TaskUpdate(reader.vertex, reader.attempt_id, S.FAILED, TaskFailure(lost)))
    assert story.scheduler.restarts == 1
    assert sorted(restarted(story)) == ["a_0", "a_1"]
