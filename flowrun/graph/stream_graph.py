"""The StreamGraph: one node per physical operator, and edges onto which unions, side outputs and partitionings were folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import Enum
from functools import cached_property

from flowrun.api.operator import ChainingStrategy, OperatorRecipe, OutputTag
from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.core.record import record
from flowrun.core.resources import ResourceSpec, SlotSharingGroup
from flowrun.core.schema import Schema
from flowrun.errors import Location
from flowrun.graph.job_graph import JobSettings
from flowrun.graph.partitioner import Partitioner


class ExecutionMode(Enum):
    """How a job runs: all tasks at once, or (BATCH) stage by stage over bounded input.

    AUTOMATIC is BATCH where all sources end, there is no iteration and no checkpoints are asked for, else STREAMING; a stream graph
    says which of the two it became.
    """

    STREAMING = "streaming"
    BATCH = "batch"
    AUTOMATIC = "automatic"


class ExchangeMode(Enum):
    """When the consumer of an edge may read: while rows are produced, after the last one, or as the job's mode says."""

    PIPELINED = "pipelined"
    BATCH = "batch"
    UNDEFINED = "undefined"


class NodeKind(Enum):
    """What a stream node is; the value is the word that `explain` shows."""

    SOURCE = "source"
    ONE_INPUT = "one input"
    TWO_INPUT = "two input"
    MULTI_INPUT = "multi input"
    SINK = "sink"
    ITERATION_HEAD = "iteration head"
    ITERATION_TAIL = "iteration tail"


@record
class Iteration:
    """What the head and the tail of one iteration share: rows that reach the tail come out of the head of the same subtask.

    Attributes:
        iteration_id: unique in the graph and stable across runs.
        wait_ms: the head ends its stream after so long without a row; 0: never.
    """

    iteration_id: str
    wait_ms: int


@record
class StreamNode:
    """One operator, all settings resolved.

    Attributes:
        id: 1, 2, … in topological order; meaningless outside this graph.
        factory: None for the two ends of an iteration, which the runtime supplies.
        state_keys: key columns (positions) an input, if the operator is keyed.
        iteration: set for the two ends of an iteration.
        max_parallelism_given: by the user, not derived from the parallelism.
        slot_resources: what the operator says that each slot of its group has.
        exact_watermarks: the operator, or one behind it, takes rows and watermarks in their exact order.
        exact_behind: one behind it does.
        sorted_inputs: its inputs with keys are sorted by them (batch mode).
        written_at: what it comes from in the user's text.
    """

    id: int
    kind: NodeKind
    name: str
    schema: Schema
    factory: OperatorRecipe | None
    chaining: ChainingStrategy
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    uid: str | None = None
    user_hash: str | None = None
    co_location_key: str | None = None
    state_keys: tuple[tuple[int, ...], ...] | None = None
    min_resources: ResourceSpec = field(default_factory=ResourceSpec)
    preferred_resources: ResourceSpec = field(default_factory=ResourceSpec)
    slot_resources: ResourceSpec | None = None
    source: Source | None = None
    sink: Sink | None = None
    iteration: Iteration | None = None
    max_parallelism_given: bool = False
    exact_watermarks: bool = False
    exact_behind: bool = False
    sorted_inputs: bool = False
    written_at: Location | None = field(default=None, compare=False)


@record
class StreamEdge:
    """Rows of `source` (its main output, or the side output `tag`) on their way to input `input_index` of `target`.

    Attributes:
        edge_id: unique in the graph, also for several edges between one pair of nodes.
        schema: columns of the rows on this edge.
    """

    edge_id: str
    source: int
    target: int
    input_index: int
    partitioner: Partitioner
    exchange: ExchangeMode
    schema: Schema
    tag: OutputTag | None
    buffer_timeout_ms: int


@record
class GraphSettings:
    """What shapes the graphs of a pipeline.

    Attributes:
        parallelism: of operators that do not set their own.
        max_parallelism: of operators that do not set their own; None: derived from the parallelism.
        chaining: False gives every operator a task of its own.
        mode: AUTOMATIC is decided when the stream graph is built.
        job: handed on to the runtime; `unbounded` is found from the sources, `batch_mode` from `mode`.
        slot_sharing_groups: what each slot of a group has; operators may say it of theirs, too.
    """

    parallelism: int = 1
    max_parallelism: int | None = None
    chaining: bool = True
    mode: ExecutionMode = ExecutionMode.STREAMING
    job: JobSettings = field(default_factory=JobSettings)
    slot_sharing_groups: tuple[SlotSharingGroup, ...] = ()


@record(slots=False)
class StreamGraph:
    """Nodes in topological order, edges in the order of their targets' inputs. The way from an iteration's tail back to its head
    is not an edge, so the graph has no cycles.
    """

    name: str
    nodes: tuple[StreamNode, ...]
    edges: tuple[StreamEdge, ...]
    settings: GraphSettings

    @cached_property
    def _nodes_by_id(self) -> dict[int, StreamNode]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def _in_edges(self) -> dict[int, tuple[StreamEdge, ...]]:
        return self._grouped((edge.target, edge) for edge in self.edges)

    @cached_property
    def _out_edges(self) -> dict[int, tuple[StreamEdge, ...]]:
        return self._grouped((edge.source, edge) for edge in self.edges)

    def _grouped(self, pairs: Iterator[tuple[int, StreamEdge]]) -> dict[int, tuple[StreamEdge, ...]]:
        lists: dict[int, list[StreamEdge]] = {node.id: [] for node in self.nodes}
        for node_id, edge in pairs:
            lists[node_id].append(edge)
        return {node_id: tuple(edges) for node_id, edges in lists.items()}

    def node(self, node_id: int) -> StreamNode:
        """The node with this id. Raises KeyError."""
        return self._nodes_by_id[node_id]

    def in_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Edges into a node, ordered by input index, then as the user listed them."""
        return self._in_edges[node_id]

    def out_edges(self, node_id: int) -> tuple[StreamEdge, ...]:
        """Edges out of a node, in the order of their targets."""
        return self._out_edges[node_id]

    @property
    def sources(self) -> Iterator[StreamNode]:
        """Nodes without input: sources and iteration heads."""
        return (node for node in self.nodes if not self.in_edges(node.id))
