"""Which parallelism goes with how many slots."""

from __future__ import annotations

import pytest

from flowrun.core.clock import SystemClock
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runners.reactive import first_settled, fitting_parallelism
from flowrun.runners.workers import slots_needed
from tests.job_graphs import Edge, Vertex, job_graph

EXCHANGE = [Edge("source", "sink", KeyGroupPartitioner((0,)))]


def in_one_group(parallelism: int) -> JobGraph:
    return job_graph([Vertex("source", parallelism), Vertex("sink", parallelism)], EXCHANGE)


def in_two_groups(parallelism: int) -> JobGraph:
    """A job whose sinks do not share slots with the rest: it needs twice as many."""
    return job_graph([Vertex("source", parallelism), Vertex("sink", parallelism, group="apart")], EXCHANGE)


@pytest.mark.parametrize(("slots", "most", "fits"), [(1, 128, 1), (7, 128, 7), (7, 4, 4)])
def test_one_slot_sharing_group_needs_a_slot_for_each_parallel_subtask(slots: int, most: int, fits: int) -> None:
    assert fitting_parallelism(slots, most, in_one_group) == fits


@pytest.mark.parametrize(("slots", "fits"), [(1, 1), (2, 1), (7, 3), (8, 4)])
def test_several_groups_need_more(slots: int, fits: int) -> None:
    assert slots_needed(in_two_groups(3)) == 6
    assert fitting_parallelism(slots, 128, in_two_groups) == fits


def test_nobody_is_waited_for_once_it_is_over() -> None:
    assert first_settled(lambda: 2, 0, lambda: True, SystemClock()) is None
    assert first_settled(lambda: 2, 0, lambda: False, SystemClock()) == 2
