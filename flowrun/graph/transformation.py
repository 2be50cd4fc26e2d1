"""Transformations: the logical operations of a job, as plan lowering or the programmatic API states them.

Physical ones hold an operator factory; virtual ones (union, side output, partition) only shape the edge that is added when the
next physical one is reached. Transformations are compared by identity; a transformation read twice is translated once.
"""

from __future__ import annotations

from dataclasses import field

from flowrun.api.operator import ChainingStrategy, OperatorRecipe, OutputTag
from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.core.record import record
from flowrun.core.resources import ResourceSpec
from flowrun.core.row_errors import OnError
from flowrun.core.schema import Schema
from flowrun.errors import Location
from flowrun.graph.partitioner import Partitioner

DEFAULT_SLOT_SHARING_GROUP = "default"


@record(eq=False, slots=False, frozen=False, kw_only=True)
class Transformation:
    """Base of all transformations.

    Attributes:
        name: shown to users.
        schema: columns of the main output.
        uid: the user's stable id: state of a savepoint is mapped by it.
        user_hash: the operator id itself, 32 hex digits; for state written before there was a uid. Wins over `uid`.
        parallelism: None means the job's default.
        max_parallelism: None means derived from the parallelism.
        buffer_timeout_ms: longest wait before a partial buffer is sent; None: the job's.
        slot_sharing_group: None: the inputs' common group, else `default`.
        slot_resources: what each slot of `slot_sharing_group` has; None: the transformation does not say.
        co_location_key: subtasks i of all transformations with one key run in one slot.
    """

    name: str
    schema: Schema
    uid: str | None = None
    user_hash: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    buffer_timeout_ms: int | None = None
    slot_sharing_group: str | None = None
    co_location_key: str | None = None
    slot_resources: ResourceSpec | None = None
    min_resources: ResourceSpec = field(default_factory=ResourceSpec)
    preferred_resources: ResourceSpec = field(default_factory=ResourceSpec)

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        """Transformations that this one reads."""
        return ()


@record(eq=False, slots=False, frozen=False, kw_only=True)
class PhysicalTransformation(Transformation):
    """A transformation that becomes a stream node: it has an operator. `chaining` overrides the factory's strategy.

    `on_error`: what a program said becomes of rows that it cannot process; None: what holds for the job.
    `written_at`: what the operator comes from in the user's text; None: it has no place there.
    """

    factory: OperatorRecipe
    chaining: ChainingStrategy | None = None
    on_error: OnError | None = None
    written_at: Location | None = None


@record(eq=False, slots=False, frozen=False, kw_only=True)
class SourceTransformation(PhysicalTransformation):
    """Reads from outside. `source` is kept beside the factory so that the job master can enumerate its splits."""

    source: Source


@record(eq=False, slots=False, frozen=False, kw_only=True)
class OneInputTransformation(PhysicalTransformation):
    """One input. `state_keys` are the key columns (positions in the input) if the operator is keyed."""

    input: Transformation
    state_keys: tuple[int, ...] | None = None

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return (self.input,)


@record(eq=False, slots=False, frozen=False, kw_only=True)
class TwoInputTransformation(PhysicalTransformation):
    """Two inputs with their own schemas and keys."""

    left: Transformation
    right: Transformation
    state_keys: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return (self.left, self.right)


@record(eq=False, slots=False, frozen=False, kw_only=True)
class MultiInputTransformation(PhysicalTransformation):
    """Any number of inputs."""

    members: tuple[Transformation, ...]
    state_keys: tuple[tuple[int, ...], ...] | None = None

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return self.members


@record(eq=False, slots=False, frozen=False, kw_only=True)
class SinkTransformation(PhysicalTransformation):
    """Writes outside. `sink` is kept beside the factory so that the job master can commit.

    `state_keys` are the key columns (positions in the input) if the sink keeps rows by key.
    """

    input: Transformation
    sink: Sink
    state_keys: tuple[int, ...] | None = None

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return (self.input,)


@record(eq=False, slots=False, frozen=False, kw_only=True)
class WatermarkTransformation(OneInputTransformation):
    """Assigns timestamps and watermarks in mid-stream; upstream watermarks except MAX end here."""


@record(eq=False, slots=False, frozen=False, kw_only=True)
class UnionTransformation(Transformation):
    """Virtual: all rows of all members."""

    members: tuple[Transformation, ...]

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return self.members


@record(eq=False, slots=False, frozen=False, kw_only=True)
class SideOutputTransformation(Transformation):
    """Virtual: the rows that `input` sends to `tag`."""

    input: Transformation
    tag: OutputTag

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return (self.input,)


@record(eq=False, slots=False, frozen=False, kw_only=True)
class PartitionTransformation(Transformation):
    """Virtual: the next edge uses `partitioner` (key_by, rebalance, broadcast, …)."""

    input: Transformation
    partitioner: Partitioner

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return (self.input,)


@record(eq=False, slots=False, frozen=False, kw_only=True)
class FeedbackTransformation(Transformation):
    """An iteration over `input`: rows that reach a feedback edge come back to its head. `feedback_edges` are added later."""

    input: Transformation
    wait_ms: int = 0
    feedback_edges: list[Transformation] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Transformation, ...]:
        return (self.input,)


@record(eq=False, slots=False, frozen=False, kw_only=True)
class CoFeedbackTransformation(Transformation):
    """The second input of a two-input operator, fed only by feedback edges (an iteration with a type of its own)."""

    wait_ms: int = 0
    feedback_edges: list[Transformation] = field(default_factory=list)
