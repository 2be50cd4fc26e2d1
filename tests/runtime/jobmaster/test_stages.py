"""Jobs with blocking exchanges: stages start when what they read is complete, and what nobody needs any more is released."""

from __future__ import annotations

from flowrun.errors import DataError, PartitionLostError
from flowrun.graph.execution_graph import ExecutionVertexId, PartitionId, build_execution_graph
from flowrun.graph.job_graph import ResultType
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner
from flowrun.runtime.jobmaster import scheduler_events as events
from flowrun.runtime.jobmaster.restart import FixedDelay
from flowrun.runtime.jobmaster.scheduler import Scheduler
from flowrun.runtime.lifecycle import ExecutionState, JobState
from flowrun.runtime.messages import TaskFailure, TaskUpdate
from tests.job_graphs import Edge, Vertex, job_graph
from tests.slot_grants import handle

S = ExecutionState
BLOCKING = ResultType.BLOCKING
VERTICES = (Vertex("a", 2), Vertex("b", 1), Vertex("join", 2), Vertex("sink", 2))
EDGES = (
    Edge("a", "join", RebalancePartitioner(), 0, BLOCKING),
    Edge("b", "join", RebalancePartitioner(), 1, BLOCKING),
    Edge("join", "sink", ForwardPartitioner(), 0, BLOCKING),
)
"""Stages: a_0, a_1 and b_0 → join_0, join_1 → sink_0, sink_1."""
OF_A, OF_B = (PartitionId("a-join-0", 0), PartitionId("a-join-0", 1)), PartitionId("b-join-1", 0)


class Story:
    """A scheduler, and what it has deployed and released."""

    def __init__(self) -> None:
        graph = build_execution_graph(job_graph(VERTICES, EDGES))
        self.scheduler = Scheduler(graph, "job", 0, FixedDelay(5, 0))
        self.released: list[PartitionId] = []

    def give(self, event: events.Event) -> list[str]:
        """The subtasks that are deployed because of an event, as in `a_0`."""
        deployed = []
        for command in handle(self.scheduler, event, 0):
            match command:
                case events.DeployTask(vertex=vertex):
                    assert self.scheduler.begin_deployment(vertex, 0)
                    deployed.append(str(vertex))
                case events.ReleasePartitions(partitions=partitions):
                    self.released += [p.partition for p in partitions]
                case events.CancelTask(attempt_id=attempt):
                    execution = self.scheduler.executions.by_attempt(attempt)
                    assert execution is not None
                    deployed += self.give(TaskUpdate(execution.vertex, attempt, S.CANCELED))
                case events.RestartAt(round=number):
                    deployed += self.give(events.RestartDue(number))
                case events.RestoreState(round=number):
                    deployed += self.give(events.StateRestored(number))
        return deployed

    def tell(self, name: str, *states: S, error: BaseException | None = None) -> list[str]:
        vertex, _, subtask = name.rpartition("_")
        execution = self.scheduler.executions.current(ExecutionVertexId(vertex, int(subtask)))
        failure = None if error is None else TaskFailure(error, "op", "process")
        deployed: list[str] = []
        for state in states:
            deployed += self.give(TaskUpdate(execution.vertex, execution.attempt_id, state, failure))
        return deployed

    def run(self, *names: str) -> list[str]:
        """Have subtasks run to their end; gives what that lets begin."""
        return [d for name in names for d in self.tell(name, S.INITIALIZING, S.RUNNING, S.FINISHED)]

    def fail(self, name: str, error: BaseException) -> list[str]:
        return self.tell(name, S.INITIALIZING, S.RUNNING) + self.tell(name, S.FAILED, error=error)


def test_a_stage_starts_when_all_that_it_reads_is_complete() -> None:
    story = Story()
    assert story.give(events.StartJob()) == ["a_0", "a_1", "b_0"]
    assert story.run("a_0", "b_0") == []
    assert story.run("a_1") == ["join_0", "join_1"]
    assert story.run("join_0") == ["sink_0"], "its pipelined region alone"
    assert story.run("join_1") == ["sink_1"]
    story.run("sink_0", "sink_1")
    assert [e.state for e in story.scheduler.executions] == [S.FINISHED] * 7


def test_partitions_are_released_when_all_their_readers_have_finished() -> None:
    story = Story()
    story.give(events.StartJob())
    story.run("a_0", "a_1", "b_0", "join_0")
    assert story.released == []
    story.run("join_1")
    assert set(story.released) == {*OF_A, OF_B}
    story.run("sink_1")
    assert story.released[-1] == PartitionId("join-sink-2", 1)


def test_a_failed_stage_restarts_alone_and_reads_again() -> None:
    story = Story()
    story.give(events.StartJob())
    story.run("a_0", "a_1", "b_0")
    assert story.fail("join_0", DataError("bad")) == ["join_0"]
    assert story.run("join_0") == ["sink_0"]
    assert story.fail("sink_0", DataError("bad")) == ["sink_0"], "join_0 has finished: its partition is there"
    story.run("join_1", "sink_1", "sink_0")
    assert story.scheduler.executions.all_finished


def test_a_lost_partition_has_its_producer_run_again() -> None:
    story = Story()
    story.give(events.StartJob())
    story.run("a_0", "a_1", "b_0")
    lost = PartitionLostError("gone", data_set_id=OF_B.data_set_id, subtask=OF_B.subtask)
    assert story.fail("join_0", lost) == ["b_0"], "readers wait for it"
    assert story.run("b_0") == ["join_0", "join_1"]
    story.run("join_0", "join_1", "sink_0", "sink_1")
    assert story.scheduler.executions.all_finished


def test_the_loss_of_what_was_released_goes_back_to_the_beginning() -> None:
    story = Story()
    story.give(events.StartJob())
    story.run("a_0", "a_1", "b_0", "join_0", "join_1")
    lost = PartitionLostError("gone", data_set_id="join-sink-2", subtask=0)
    assert story.fail("sink_0", lost) == ["a_0", "a_1", "b_0"]


def test_what_has_not_begun_is_not_waited_for_when_the_job_is_cancelled() -> None:
    story = Story()
    story.give(events.StartJob())
    story.run("a_0", "a_1")
    story.tell("b_0", S.INITIALIZING, S.RUNNING)
    story.give(events.CancelJob())
    assert story.scheduler.state is JobState.CANCELED
    assert [e.state for e in story.scheduler.executions][3:] == [S.CANCELED] * 4
