"""Who must have ended before the subtasks of a source begin to read."""

from __future__ import annotations

from dataclasses import replace

from runtime_fakes import Count, job, vertex

from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, build_execution_graph
from flowrun.graph.partitioner import ForwardPartitioner, KeyGroupPartitioner, RescalePartitioner
from flowrun.runtime.jobmaster.ordered_sources import OrderedSources


def graph(*, exact: bool) -> ExecutionGraph:
    """Two sources of four subtasks → one operator that reads both → half as many → by key."""
    one, two = vertex("one", Count, parallelism=4), vertex("two", Count, parallelism=4)
    both = vertex("both", Count, parallelism=4).read(one, ForwardPartitioner()).read(two, ForwardPartitioner(), 1)
    half = vertex("half", Count, parallelism=2).read(both, RescalePartitioner())
    made = job(one, two, both, half, vertex("keyed", Count, parallelism=2).read(half, KeyGroupPartitioner((0,))))
    marked = tuple(
        replace(v, operators=tuple(replace(o, exact_watermarks=exact) for o in v.operators)) for v in made.vertices
    )
    return build_execution_graph(replace(made, vertices=marked))


def subtasks(name: str, *numbers: int) -> set[ExecutionVertexId]:
    return {ExecutionVertexId(f"{name}-0", n) for n in numbers}


def test_who_reads_from_subtasks_without_rows_alone_must_end_with_them() -> None:
    unneeded = subtasks("one", 1, 2, 3) | subtasks("two", 2, 3)
    (first,), (second,), (third,) = subtasks("one", 1), subtasks("one", 2), subtasks("two", 3)
    found = OrderedSources(graph(exact=True)).must_end(unneeded)
    assert found.keys() == unneeded
    assert found[first] == {first}, "its reader reads from a subtask with rows, too"
    assert found[second] == {second} | subtasks("both", 2) | subtasks("half", 1)
    assert found[third] == {third} | subtasks("both", 3) | subtasks("half", 1)


def test_nobody_is_waited_for_where_watermarks_between_rows_do_not_count() -> None:
    unneeded = subtasks("one", 3) | subtasks("two", 3)
    assert OrderedSources(graph(exact=False)).must_end(unneeded) == {v: {v} for v in unneeded}
