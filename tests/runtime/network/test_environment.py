"""The partitions of a process belong to attempts, and gates read those that they were told of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from runtime_fakes import Collect, ListSource, Seen, job, rows, vertex

from flowrun.core.clock import SystemClock
from flowrun.errors import ClusterError, InternalError
from flowrun.graph.execution_graph import ExecutionVertex, build_execution_graph
from flowrun.runtime.messages import PartitionLocation
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.environment import NetworkEnvironment
from flowrun.runtime.network.shuffle import ShuffleEnvironment
from flowrun.runtime.timers import TimerThread


@pytest.fixture
def environment() -> Iterator[ShuffleEnvironment]:
    clock = SystemClock()
    timers = TimerThread(clock)
    network = NetworkEnvironment(GlobalBufferPool(), timers, clock)
    yield network
    network.release()
    timers.close()


@pytest.fixture
def producer_and_consumer() -> tuple[ExecutionVertex, ExecutionVertex]:
    source = vertex("source", lambda: ListSource(lambda subtask: ()))
    sink = vertex("sink", lambda: Collect(Seen())).read(source)
    graph = build_execution_graph(job(source, sink))
    producer, consumer = graph.all_vertices()
    return producer, consumer


def test_a_gate_reads_the_attempt_that_it_was_told_of(
    environment: ShuffleEnvironment, producer_and_consumer: tuple[ExecutionVertex, ExecutionVertex]
) -> None:
    producer, consumer = producer_and_consumer
    (description,) = producer.partitions
    environment.create_partition(description, "first")
    partition = environment.create_partition(description, "second")
    stale = PartitionLocation(description.id, "first", "here", "")
    with pytest.raises(InternalError, match="was written by attempt second, not by first"):
        environment.create_gates(consumer, 100, {description.id: stale})
    (gate,) = environment.create_gates(
        consumer, 100, {description.id: PartitionLocation(description.id, "second", "here", "")}
    )
    gate.request_partitions()
    partition.write([(0, rows([1]))])
    partition.flush()
    assert gate.poll() is not None
    gate.release()


def test_a_partition_of_another_process_cannot_be_read_without_a_connection(
    environment: ShuffleEnvironment, producer_and_consumer: tuple[ExecutionVertex, ExecutionVertex]
) -> None:
    producer, consumer = producer_and_consumer
    (description,) = producer.partitions
    elsewhere = PartitionLocation(description.id, "first", "worker-2", "tcp://127.0.0.1:7")
    with pytest.raises(ClusterError, match="is in process worker-2"):
        environment.create_gates(consumer, 100, {description.id: elsewhere})
