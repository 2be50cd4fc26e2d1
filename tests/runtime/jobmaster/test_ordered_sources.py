"""Who must have ended before the subtasks of a source begin to read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from runtime_fakes import Count, job, vertex

from flowrun.api.source import Boundedness
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, build_execution_graph
from flowrun.graph.partitioner import ForwardPartitioner, KeyGroupPartitioner, RescalePartitioner
from flowrun.runtime.jobmaster.ordered_sources import OrderedSources

SOURCE = SimpleNamespace(boundedness=Boundedness.BOUNDED)


def graph(*, batch_mode: bool = False) -> ExecutionGraph:
    """Two sources of four subtasks → one operator that reads both → half as many → by key."""
    one, two = (vertex(name, Count, parallelism=4, source=SOURCE) for name in ("one", "two"))
    both = vertex("both", Count, parallelism=4).read(one, ForwardPartitioner()).read(two, ForwardPartitioner(), 1)
    half = vertex("half", Count, parallelism=2).read(both, RescalePartitioner())
    made = job(one, two, both, half, vertex("keyed", Count, parallelism=2).read(half, KeyGroupPartitioner((0,))))
    return build_execution_graph(replace(made, settings=replace(made.settings, batch_mode=batch_mode)))


def subtasks(name: str, *numbers: int) -> set[ExecutionVertexId]:
    return {ExecutionVertexId(f"{name}-0", n) for n in numbers}


def test_who_reads_from_subtasks_without_rows_alone_must_end_with_them() -> None:
    unneeded = subtasks("one", 1, 2, 3) | subtasks("two", 2, 3)
    (first,), (second,), (third,) = subtasks("one", 1), subtasks("one", 2), subtasks("two", 3)
    found = OrderedSources(graph()).must_end(unneeded)
    assert found.keys() == unneeded
    assert found[first] == {first}, "its reader reads from a subtask with rows, too"
    assert found[second] == {second} | subtasks("both", 2) | subtasks("half", 1)
    assert found[third] == {third} | subtasks("both", 3) | subtasks("half", 1)


def test_in_batch_mode_nobody_is_waited_for() -> None:
    assert OrderedSources(graph()).vertices == {"one-0", "two-0"}
    assert OrderedSources(graph(batch_mode=True)).vertices == frozenset()
