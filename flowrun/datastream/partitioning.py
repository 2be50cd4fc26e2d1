"""How the rows of a stream are dealt out to the subtasks of the next operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.datastream.broadcast import BroadcastStream, NamedState
from flowrun.datastream.functions import column_positions
from flowrun.errors import DataError, PipelineError
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
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream


Row = Mapping[str, Any]
KeyFunction = Callable[[Any, int], int]
"""(key of a row, number of subtasks) → index of the subtask that gets the row."""


@record
class RowPartition:
    """Asks a function on rows where each row of a batch goes.

    Attributes:
        place: begins messages.
        function: is asked.
        columns: position of the key column, or of several.
        key_of: gives the key of a row instead.
    """

    place: str
    function: KeyFunction
    columns: int | tuple[int, ...] = ()
    key_of: Callable[[Row], Any] | None = None

    def __call__(self, batch: RecordBatch, channels: int) -> Integers:
        """The index of a subtask for each row.

        Raises:
            DataError: a function fails, or gives no whole number.
        """
        found = np.empty(batch.num_rows, np.int64)
        row = 0
        try:
            for row, key in enumerate(self._keys(batch.columns)):
                found[row] = index(self.function(key, channels))
        except Exception as error:
            shown = describe_row(batch.columns, row)
            raise DataError(
                f"{self.place}: the function raised {describe(error)}{where(error, __file__)}; the row is {shown}",
                row=row,
            ) from error
        return found

    def _keys(self, rows: pa.RecordBatch) -> Iterable[Any]:
        if self.key_of is not None:
            return map(self.key_of, rows.to_pylist())
        if isinstance(self.columns, int):
            return list(rows.column(self.columns).to_pylist())
        return zip(*(rows.column(c).to_pylist() for c in self.columns), strict=True)


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

    def partition_custom(
        self, function: KeyFunction, key: str | Sequence[str] | Callable[[Row], Any], name: str = "custom"
    ) -> DataStream:
        """Each row to the subtask that `function(key, number of subtasks)` names by its index.

        Args:
            function: Flink's `Partitioner`.
            key: a column, several of them (then the key is a tuple), or a function that takes the row and gives its key.
            name: of the partitioning.

        Raises:
            PipelineError: there is no such column, or the function cannot be called.
        """
        place = f"partition_custom '{name}'"
        if not callable(function):
            raise PipelineError.of(
                f"{place}: {function!r} is not a function", "give a function of the key and the number of subtasks"
            )
        if callable(key):
            rows = RowPartition(place, function, key_of=key)
        else:
            columns = (key,) if isinstance(key, str) else tuple(key)
            positions = column_positions(self.transformation.schema, columns, place)
            rows = RowPartition(place, function, positions[0] if isinstance(key, str) else positions)
        return self.partition_custom_batches(rows, name)

    def partition_custom_batches(self, function: ChannelFunction, name: str = "custom") -> DataStream:
        """Rows to the subtasks that `function(batch, number of subtasks)` names, one index a row in an array."""
        return self._partitioned(CustomPartitioner(function, name), name)

    def _partitioned(self, partitioner: Partitioner, name: str) -> DataStream:
        transformation = PartitionTransformation(
            name=name, schema=self.transformation.schema, input=self.transformation, partitioner=partitioner
        )
        return self.derived(transformation)
