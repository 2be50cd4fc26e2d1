"""What lowering puts around operators: the user's hints and, before keyed ones, the shuffle by key."""

from __future__ import annotations

from typing import TypeVar

from flowrun.api.operator import ChainingStrategy, OperatorSpec
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    Transformation,
    TwoInputTransformation,
    UnionTransformation,
)
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.plan.nodes import NodeHints, PlanNode

Made = TypeVar("Made", bound=PhysicalTransformation)


def with_hints(transformation: Made, hints: NodeHints, *, alone: bool = False) -> Made:
    """The transformation with uid, parallelism, slot sharing group and chaining as the user said; `alone`: in one subtask in any case."""
    transformation.uid = hints.stable_id
    transformation.parallelism = 1 if alone else hints.parallelism
    transformation.slot_sharing_group = hints.slot_sharing_group
    transformation.chaining = None if hints.chaining else ChainingStrategy.NEVER
    return transformation


def by_key(source: Transformation, keys: tuple[int, ...], name: str) -> Transformation:
    """The rows of `source` shuffled by the columns at `keys`; without keys as they are.

    Raises:
        DataError: a column's type cannot be a key.
    """
    if not keys:
        return source
    fields = [source.schema.fields[key] for key in keys]
    KeyCodec.of([(field.name, field.type) for field in fields])
    partitioner = KeyGroupPartitioner(keys)
    return PartitionTransformation(name=f"{name} (by key)", schema=source.schema, input=source, partitioner=partitioner)


def keyed(
    node: PlanNode, factory: OperatorSpec, source: Transformation, keys: tuple[int, ...], name: str
) -> Transformation:
    """A keyed operator with one input behind a shuffle; without keys it runs alone. `name`: unless the user gave one."""
    name = node.hints.name or name
    made = OneInputTransformation(
        name=name,
        schema=node.schema,
        factory=factory,
        input=by_key(source, keys, name),
        state_keys=keys,
    )
    return with_hints(made, node.hints, alone=not keys)


def keyed_pair(
    node: PlanNode,
    factory: OperatorSpec,
    sources: tuple[Transformation, ...],
    keys: tuple[tuple[int, ...], tuple[int, ...]],
    name: str,
) -> Transformation:
    """A keyed operator with two inputs, both shuffled by their keys (of pairwise equal types); without keys it runs alone."""
    name = node.hints.name or name
    left, right = sources
    made = TwoInputTransformation(
        name=name,
        schema=node.schema,
        factory=factory,
        left=by_key(left, keys[0], f"{name}, left"),
        right=by_key(right, keys[1], f"{name}, right"),
        state_keys=keys,
    )
    return with_hints(made, node.hints, alone=not keys[0])


def producing_parallelism(transformation: Transformation, default: int) -> int:
    """Parallelism of the operators that produce a transformation's rows; of a union, the highest."""
    while isinstance(transformation, SideOutputTransformation | PartitionTransformation):
        transformation = transformation.input
    if isinstance(transformation, UnionTransformation):
        return max(producing_parallelism(m, default) for m in transformation.members)
    return transformation.parallelism or default
