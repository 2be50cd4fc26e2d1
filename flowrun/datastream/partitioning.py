"""How the rows of a stream are dealt out to the subtasks of the next operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from flowrun.datastream.broadcast import BroadcastStream, NamedState
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    ChannelFunction,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from flowrun.graph.transformation import PartitionTransformation, Transformation

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream


class Partitionable:
    """The part of a stream that deals out its rows."""

    transformation: Transformation

    def derived(self, transformation: Transformation) -> DataStream:
        """The stream of a transformation that reads this one."""
        raise NotImplementedError

    def forward(self) -> DataStream:
        """Subtask i to subtask i; an error if the next operator's parallelism differs."""
        return self._partitioned(ForwardPartitioner(), "forward")

    def rebalance(self) -> DataStream:
        """Batches round robin to all subtasks."""
        return self._partitioned(RebalancePartitioner(), "rebalance")

    def rescale(self) -> DataStream:
        """Batches round robin to the near share of subtasks."""
        return self._partitioned(RescalePartitioner(), "rescale")

    def shuffle(self, seed: int = 0) -> DataStream:
        """Rows to random subtasks."""
        return self._partitioned(ShufflePartitioner(seed), "shuffle")

    @overload
    def broadcast(self) -> DataStream: ...
    @overload
    def broadcast(self, state: NamedState, /, *states: NamedState) -> BroadcastStream: ...

    def broadcast(self, *states: NamedState) -> DataStream | BroadcastStream:
        """Every row to every subtask. With broadcast states, or their names, a stream to be connected, whose rows change these states."""
        rows = self._partitioned(BroadcastPartitioner(), "broadcast")
        return BroadcastStream(rows, states) if states else rows

    def global_(self) -> DataStream:
        """Every row to the first subtask."""
        return self._partitioned(GlobalPartitioner(), "global")

    def partition_custom(self, function: ChannelFunction, name: str = "custom") -> DataStream:
        """Rows to the subtasks that `function(batch, number of subtasks)` names, one index a row. It must pickle."""
        return self._partitioned(CustomPartitioner(function, name), name)

    def _partitioned(self, partitioner: Partitioner, name: str) -> DataStream:
        transformation = PartitionTransformation(
            name=name, schema=self.transformation.schema, input=self.transformation, partitioner=partitioner
        )
        return self.derived(transformation)
