"""The JobGraph: chains of operators as vertices, data sets between them; what a runtime accepts."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from flowrun.api.operator import OperatorRecipe, OutputTag
from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.core.record import record
from flowrun.core.recovery import DEFAULT_CANCELLATION_TIMEOUT_MS, CheckpointSettings, RestartSettings
from flowrun.core.resources import ResourceSpec, SlotSettings, SlotSharingGroup
from flowrun.core.schema import Schema
from flowrun.errors import Location
from flowrun.graph.partitioner import Partitioner


class ResultType(Enum):
    """How a data set is kept: in memory and read once, or spilled and read after its end."""

    PIPELINED = "pipelined"
    BLOCKING = "blocking"


@record
class ChainedOperator:
    """One operator of a chain. `operator_id` is a stable 32-digit hex hash (of the uid, or of the structure)."""

    operator_id: str
    name: str
    uid: str | None
    factory: OperatorRecipe
    schema: Schema
    state_keys: tuple[tuple[int, ...], ...] | None = None
    """Key columns an input, if the operator is keyed."""
    source: Source | None = None
    sink: Sink | None = None
    exact_watermarks: bool = False
    """Whether the operator, or one behind it, takes rows and watermarks in their exact order."""
    exact_behind: bool = False
    """Whether one behind it does."""
    sorted_inputs: bool = False
    """Whether its inputs with keys are sorted by them; only the head of a chain."""
    written_at: Location | None = field(default=None, compare=False)
    """What it comes from in the user's text; no part of what it is, so a comment may move it."""


@record
class ChainEdge:
    """A direct call inside a chain: from operator `source` to operator `target` (positions in the chain).

    `data_set_id` and `schema` are those of the exchange that is there if the two are not chained, as at another parallelism.
    """

    source: int
    target: int
    tag: OutputTag | None = None
    data_set_id: str = field(default="", compare=False)
    schema: Schema | None = field(default=None, compare=False)


@record
class OutputEdge:
    """Where a chain's rows leave it: operator `source` (position) writes to result `result` (position in `JobVertex.results`)."""

    source: int
    result: int
    partitioner: Partitioner
    schema: Schema
    tag: OutputTag | None = None
    buffer_timeout_ms: int = 100
    exact_watermarks: bool = False
    """Whether who reads it, or one behind, takes rows and watermarks in their exact order."""


@record
class IntermediateDataSet:
    """What a vertex produces for exactly one job edge."""

    data_set_id: str
    producer: str
    type: ResultType
    partitioner: Partitioner


@record
class JobEdge:
    """A data set consumed by a vertex; several edges may share an `input_index` (union)."""

    data_set_id: str
    source: str
    target: str
    input_index: int
    partitioner: Partitioner
    schema: Schema


@record
class JobVertex:
    """One chain: `operators[0]` is its head. `vertex_id` is the head's operator id; edges are by position.

    `max_parallelism_given`: the user set it; a savepoint with another number does not fit then. Else it follows the savepoint's.
    """

    vertex_id: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[ChainedOperator, ...]
    chain_edges: tuple[ChainEdge, ...]
    inputs: tuple[JobEdge, ...]
    output_edges: tuple[OutputEdge, ...]
    results: tuple[IntermediateDataSet, ...]
    slot_sharing_group: str
    co_location_key: str | None = None
    min_resources: ResourceSpec = field(default_factory=ResourceSpec)
    preferred_resources: ResourceSpec = field(default_factory=ResourceSpec)
    max_parallelism_given: bool = False


@record
class JobSettings:
    """What the runtime needs to know of the pipeline's settings. Durations in ms; a cancellation time-out of 0 lasts for ever.

    `batch_mode`: stages run one after the other, there is no watermark but the last, and no checkpoint.
    `traces`: checkpoints, starts and restarts are reported as traces of OpenTelemetry.
    """

    buffer_timeout_ms: int = 100
    object_reuse: bool = True
    batch_rows: int = 131_072
    latency_interval_ms: int | None = None
    cancellation_timeout_ms: int = DEFAULT_CANCELLATION_TIMEOUT_MS
    memory_watch: bool = True
    traces: bool = False
    unbounded: bool = False
    batch_mode: bool = False
    checkpoint: CheckpointSettings | None = None
    restart: RestartSettings | None = None
    slots: SlotSettings = SlotSettings()


@record
class JobGraph:
    """Vertices in topological order. `slot_sharing_groups`: those whose slots have resources of their own."""

    name: str
    vertices: tuple[JobVertex, ...]
    settings: JobSettings = field(default_factory=JobSettings)
    slot_sharing_groups: tuple[SlotSharingGroup, ...] = ()

    def vertex(self, vertex_id: str) -> JobVertex:
        """The vertex with this id. Raises KeyError."""
        for vertex in self.vertices:
            if vertex.vertex_id == vertex_id:
                return vertex
        raise KeyError(vertex_id)

    def stages(self) -> dict[str, int]:
        """The stage in which each vertex runs, from 1: behind a blocking result the next one begins."""
        kinds = {r.data_set_id: r.type for v in self.vertices for r in v.results}
        found: dict[str, int] = {}
        for vertex in self.vertices:
            after = [found[e.source] + (kinds[e.data_set_id] is ResultType.BLOCKING) for e in vertex.inputs]
            found[vertex.vertex_id] = max(after, default=1)
        return found
