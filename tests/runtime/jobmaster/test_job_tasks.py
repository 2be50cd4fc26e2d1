"""Deployments as the job master makes them: plain data that say where inputs are."""

from __future__ import annotations

from typing import Any

import pytest

from flowrun.errors import InternalError
from flowrun.graph.execution_graph import ExecutionVertexId, PartitionId, build_execution_graph
from flowrun.graph.partitioner import RebalancePartitioner
from flowrun.runtime.jobmaster.execution import Executions
from flowrun.runtime.jobmaster.job_tasks import JobTasks, WorkerPlace
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.messages import PartitionLocation, TaskDeployment
from tests.job_graphs import Edge, Vertex, job_graph

A0, A1, B0 = ExecutionVertexId("a", 0), ExecutionVertexId("a", 1), ExecutionVertexId("b", 0)
ADDRESSES = {"worker-0": "tcp://10.0.0.1:7000", "worker-1": ""}


class Places:
    """Workers, all of which are there."""

    def place_of(self, worker: str) -> WorkerPlace:
        return WorkerPlace(worker, ADDRESSES[worker])

    def reaches(self, host_folder: str) -> bool:
        return False


class Deployments:
    """An executor that notes what is deployed."""

    def __init__(self) -> None:
        self.seen: list[TaskDeployment] = []

    def deploy(self, deployment: TaskDeployment) -> None:
        self.seen.append(deployment)


class Job:
    """Two producers and a consumer; subtask i runs in worker i."""

    def __init__(self) -> None:
        graph = build_execution_graph(
            job_graph([Vertex("a", 2), Vertex("b")], [Edge("a", "b", RebalancePartitioner())])
        )
        self.partitions = [p.id for v in graph.job_vertices[0].vertices for p in v.partitions]
        self.executions = Executions(graph, "job", 0)
        self.executor: Any = Deployments()
        self.tasks = JobTasks(graph, "job", "line", self.executions, Places())
        self.tasks.connect(self.executor)

    def deploy(self, *vertices: ExecutionVertexId) -> TaskDeployment:
        for vertex in vertices:
            self.executions.current(vertex).worker = f"worker-{vertex.subtask}"
            self.tasks.deploy(vertex, self.executions.current(vertex).attempt_id, None, 3)
        last: TaskDeployment = self.executor.seen[-1]
        return last


def locations(first: PartitionId, second: PartitionId, attempt: int) -> tuple[PartitionLocation, ...]:
    return (
        PartitionLocation(first, "job_a_0_0", "worker-0", "tcp://10.0.0.1:7000"),
        PartitionLocation(second, f"job_a_1_{attempt}", "worker-1", ""),
    )


def test_a_deployment_says_which_attempts_wrote_its_inputs_and_where_they_are() -> None:
    job = Job()
    deployment = job.deploy(A0, A1, B0)
    assert job.executor.seen[0].inputs == ()
    assert deployment == TaskDeployment(
        "job", "job_b_0_0", B0, "worker-0", locations(*job.partitions, 0), None, "line", 3
    )


def test_a_new_attempt_of_a_producer_is_named() -> None:
    job = Job()
    job.deploy(A0, A1)
    job.executions.current(A1).transition(ExecutionState.FAILED, 1)
    job.executions.restart(A1, 1)
    assert job.deploy(A1, B0).inputs == locations(*job.partitions, 1)


def test_nothing_is_deployed_before_what_it_reads() -> None:
    job = Job()
    with pytest.raises(InternalError, match=r"partition .* is to be read before its producer a_0 is deployed"):
        job.deploy(B0)
