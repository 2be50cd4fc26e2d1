"""The transformations around keyed operators: the shuffle by key, and the operator behind it with the user's hints."""

from __future__ import annotations

from flowrun.api.operator import ChainingStrategy, OperatorSpec
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    TwoInputTransformation,
    UnionTransformation,
)
from flowrun.plan.nodes import PlanNode


def by_key(source: Transformation, keys: tuple[int, ...], name: str) -> Transformation:
    """The rows of `source` shuffled by the columns at `keys`; without keys as they are."""
    if not keys:
        return source
    partitioner = KeyGroupPartitioner(keys)
    return PartitionTransformation(name=f"{name} (by key)", schema=source.schema, input=source, partitioner=partitioner)


def keyed(
    node: PlanNode, factory: OperatorSpec, source: Transformation, keys: tuple[int, ...], name: str
) -> Transformation:
    """A keyed operator with one input behind a shuffle; without keys it runs alone. `name`: unless the user gave one."""
    hints = node.hints
    name = hints.name or name
    return OneInputTransformation(
        name=name,
        schema=node.schema,
        uid=hints.stable_id,
        parallelism=hints.parallelism if keys else 1,
        slot_sharing_group=hints.slot_sharing_group,
        chaining=None if hints.chaining else ChainingStrategy.NEVER,
        factory=factory,
        input=by_key(source, keys, name),
        state_keys=keys,
    )


def keyed_pair(
    node: PlanNode,
    factory: OperatorSpec,
    sources: tuple[Transformation, ...],
    keys: tuple[tuple[int, ...], tuple[int, ...]],
    name: str,
) -> Transformation:
    """A keyed operator with two inputs, both shuffled by their keys (of pairwise equal types); without keys it runs alone."""
    hints = node.hints
    name = hints.name or name
    left, right = sources
    return TwoInputTransformation(
        name=name,
        schema=node.schema,
        uid=hints.stable_id,
        parallelism=hints.parallelism if keys[0] else 1,
        slot_sharing_group=hints.slot_sharing_group,
        chaining=None if hints.chaining else ChainingStrategy.NEVER,
        factory=factory,
        left=by_key(left, keys[0], f"{name}, left"),
        right=by_key(right, keys[1], f"{name}, right"),
        state_keys=keys,
    )


def producing_parallelism(transformation: Transformation, default: int) -> int:
    """Parallelism of the operators that produce a transformation's rows; of a union, the highest."""
    while isinstance(transformation, SideOutputTransformation | PartitionTransformation):
        transformation = transformation.input
    if isinstance(transformation, UnionTransformation):
        return max(producing_parallelism(m, default) for m in transformation.members)
    return transformation.parallelism or default
