"""When two operators may share a task: the eight chaining conditions, each one a line of a table.

The conditions are those of Apache Flink's `StreamingJobGraphGenerator.isChainable`.
"""

from __future__ import annotations

from collections.abc import Callable

from flowrun.api.operator import ChainingStrategy
from flowrun.core.record import record
from flowrun.graph.partitioner import ForwardPartitioner
from flowrun.graph.stream_graph import StreamEdge, StreamGraph, StreamNode


@record
class ChainingCondition:
    """One condition on an edge: (edge, upstream node, downstream node, graph) → holds. `otherwise` is why not, for users."""

    name: str
    otherwise: str
    holds: Callable[[StreamEdge, StreamNode, StreamNode, StreamGraph], bool]


CHAINING_CONDITIONS: tuple[ChainingCondition, ...] = (
    ChainingCondition(
        "single input edge",
        "the downstream operator reads several edges",
        lambda _edge, _up, down, graph: len(graph.in_edges(down.id)) == 1,
    ),
    ChainingCondition(
        "both have operators",
        "one end is an end of an iteration",
        lambda _edge, up, down, _graph: up.factory is not None and down.factory is not None,
    ),
    ChainingCondition(
        "same slot sharing group",
        "the slot sharing groups differ",
        lambda _edge, up, down, _graph: up.slot_sharing_group == down.slot_sharing_group,
    ),
    ChainingCondition(
        "downstream strategy is ALWAYS",
        "the downstream operator starts a chain",
        lambda _edge, _up, down, _graph: down.chaining is ChainingStrategy.ALWAYS,
    ),
    ChainingCondition(
        "upstream strategy is ALWAYS or HEAD",
        "the upstream operator is never chained",
        lambda _edge, up, _down, _graph: up.chaining in (ChainingStrategy.ALWAYS, ChainingStrategy.HEAD),
    ),
    ChainingCondition(
        "forward partitioner",
        "rows are redistributed",
        lambda edge, _up, _down, _graph: isinstance(edge.partitioner, ForwardPartitioner),
    ),
    # Max parallelism counts too: one task has one number of key groups.
    ChainingCondition(
        "equal parallelism",
        "parallelism or max parallelism differ",
        lambda _edge, up, down, _graph: (
            (up.parallelism, up.max_parallelism) == (down.parallelism, down.max_parallelism)
        ),
    ),
    ChainingCondition(
        "chaining is on",
        "chaining is off",
        lambda _edge, _up, _down, graph: graph.settings.chaining,
    ),
)


def chaining_obstacles(edge: StreamEdge, graph: StreamGraph) -> tuple[ChainingCondition, ...]:
    """The conditions that keep the two ends of an edge in different tasks; empty if they may be chained."""
    up, down = graph.node(edge.source), graph.node(edge.target)
    return tuple(c for c in CHAINING_CONDITIONS if not c.holds(edge, up, down, graph))


def is_chainable(edge: StreamEdge, graph: StreamGraph) -> bool:
    """Whether the two ends of an edge share a task: all eight conditions hold."""
    return not chaining_obstacles(edge, graph)
