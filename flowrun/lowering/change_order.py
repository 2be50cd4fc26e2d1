"""Changes of one row must stay in order: what retracts a row may not overtake what added it.

Keyed exchanges keep the order of the changes that one task sends for one key. Rebalancing does not: it would deal a row and its
retraction to different tasks. So an operator without keys runs at the parallelism of what it reads; where that cannot be, equal
rows are sent to one task.
"""

from __future__ import annotations

from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    SinkTransformation,
    Transformation,
    TwoInputTransformation,
    UnionTransformation,
)
from flowrun.state.key_groups import hashable_columns


def keep_changes_in_order(transformation: Transformation, default_parallelism: int) -> None:
    """Settle parallelism or exchange of an operator without keys that reads an updating stream.

    Args:
        transformation: changed in place, if it is such an operator.
        default_parallelism: of operators that have none of their own.
    """
    match transformation:
        case OneInputTransformation() | SinkTransformation():
            inputs: tuple[str, ...] = ("input",)
        case TwoInputTransformation():
            inputs = ("left", "right")
        case _:
            return
    sources: dict[str, Transformation] = {name: getattr(transformation, name) for name in inputs}
    free = {name: s for name, s in sources.items() if not isinstance(s, PartitionTransformation)}
    produced = frozenset[int | None]().union(*map(producers, free.values()))
    if transformation.parallelism is None and len(produced) == 1:
        transformation.parallelism = next(iter(produced))
        return
    own = transformation.parallelism or default_parallelism
    if own == 1:  # one task gets everything, from each sender in order
        return
    if {p or default_parallelism for p in produced} <= {own}:
        return
    if not all(hashable_columns(source.schema.arrow) for source in free.values()):
        transformation.parallelism = 1
        return
    for name, source in free.items():
        by_row = PartitionTransformation(
            name=f"{transformation.name} (by row)",
            schema=source.schema,
            input=source,
            partitioner=KeyGroupPartitioner(hashable_columns(source.schema.arrow)),
        )
        setattr(transformation, name, by_row)


def producers(transformation: Transformation) -> frozenset[int | None]:
    """The parallelisms of the operators whose rows a transformation has; None: the pipeline's."""
    if isinstance(transformation, UnionTransformation):
        return frozenset[int | None]().union(*(producers(m) for m in transformation.members))
    if isinstance(transformation, SideOutputTransformation | PartitionTransformation):
        return producers(transformation.input)
    assert isinstance(transformation, PhysicalTransformation)
    return frozenset((transformation.parallelism,))
