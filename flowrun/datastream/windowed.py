"""Windows of the programmatic API: vectorised aggregation by key and window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OperatorFactory, OutputTag
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import timestamp
from flowrun.datastream.functions import invalid
from flowrun.graph.partitioner import GlobalPartitioner, KeyGroupPartitioner
from flowrun.graph.transformation import OneInputTransformation, PartitionTransformation, Transformation
from flowrun.operators.aggregation.keys import NullKeyPolicy
from flowrun.operators.timed.assigners import AlignedSlices
from flowrun.operators.timed.firing_clock import WindowTime
from flowrun.operators.windows.sessions.factory import SessionWindowFactory
from flowrun.operators.windows.slices.factories import (
    LocalSliceAggregateFactory,
    SliceWindowFactory,
    local_aggregation_applies,
)

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream


@record
class SessionGap:
    """Session windows: closed by `gap_ms` without rows; windows that touch merge."""

    gap_ms: int


class WindowedStream:
    """Rows by key and window, waiting for an aggregation. Settings return the same object."""

    def __init__(self, stream: DataStream, keys: tuple[int, ...], windows: AlignedSlices | SessionGap) -> None:
        self._stream = stream
        self._keys = keys
        self._windows = windows
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag | None = None
        self._domain = WindowTime.EVENT
        self._null_keys = NullKeyPolicy.GROUP

    def allowed_lateness(self, lateness_ms: int) -> WindowedStream:
        """Keep windows for so long (event time) after they fired; late rows fire them again."""
        if lateness_ms < 0:
            raise invalid(f"allowed_lateness must not be negative, got {lateness_ms} ms")
        self._allowed_lateness_ms = lateness_ms
        return self

    def side_output_late_data(self, tag: str) -> WindowedStream:
        """Send rows that are too late to a side output: `result.get_side_output(tag)`."""
        self._late_tag = OutputTag(tag, self._stream.schema)
        return self

    def in_processing_time(self) -> WindowedStream:
        """Let the machine's clock assign rows to windows and close them."""
        self._domain = WindowTime.PROCESSING
        return self

    def null_keys(self, policy: NullKeyPolicy) -> WindowedStream:
        """What happens to rows whose key is NULL; by default they form a group."""
        self._null_keys = policy
        return self

    def aggregate(self, *aggregates: BoundAggregate, name: str = "window") -> DataStream:
        """One row a key and window: keys, window_start, window_end, aggregates.

        With aligned windows rows are aggregated before the shuffle too, where that cannot change the result.
        """
        from flowrun.datastream.stream import DataStream

        schema = self._output_schema(aggregates)
        upstream, keys, factory = self._stream.transformation, self._keys, self._factory(aggregates, schema)
        if isinstance(factory, SliceWindowFactory) and self._pre_aggregates(aggregates):
            local = LocalSliceAggregateFactory(
                self._keys, aggregates, factory.assigner, self._stream.schema, null_keys=self._null_keys
            )
            upstream = OneInputTransformation(
                name=f"local {name}", schema=local.output_schema, factory=local, input=upstream
            )
            keys, factory = tuple(range(len(keys))), replace(factory, partial_input=True)
        transformation = OneInputTransformation(
            name=name,
            schema=schema,
            factory=factory,
            input=self._partitioned(upstream, keys),
            state_keys=keys,
            parallelism=None if keys else 1,
        )
        tags = () if self._late_tag is None else (self._late_tag,)
        return DataStream(self._stream.environment, transformation, tags)

    def _output_schema(self, aggregates: tuple[BoundAggregate, ...]) -> Schema:
        keys = tuple(self._stream.schema.fields[k] for k in self._keys)
        bounds = (Field("window_start", timestamp(3)), Field("window_end", timestamp(3)))
        try:
            return Schema((*keys, *bounds, *(Field(a.name, a.kernel.result) for a in aggregates)))
        except ValueError as error:
            raise invalid(f"window aggregation: {error}", "give each aggregate a name of its own") from None

    def _factory(self, aggregates: tuple[BoundAggregate, ...], schema: Schema) -> OperatorFactory:
        if isinstance(self._windows, SessionGap):
            return SessionWindowFactory(
                keys=self._keys,
                aggregates=aggregates,
                gap_ms=self._windows.gap_ms,
                input_schema=self._stream.schema,
                output_schema=schema,
                allowed_lateness_ms=self._allowed_lateness_ms,
                late_tag=self._late_tag,
                domain=self._domain,
                null_keys=self._null_keys,
            )
        return SliceWindowFactory(
            keys=self._keys,
            aggregates=aggregates,
            assigner=self._windows,
            input_schema=self._stream.schema,
            output_schema=schema,
            allowed_lateness_ms=self._allowed_lateness_ms,
            late_tag=self._late_tag,
            domain=self._domain,
            null_keys=self._null_keys,
        )

    def _pre_aggregates(self, aggregates: tuple[BoundAggregate, ...]) -> bool:
        return self._stream.environment.local_aggregation and local_aggregation_applies(
            aggregates,
            domain=self._domain,
            late_tag=self._late_tag,
            allowed_lateness_ms=self._allowed_lateness_ms,
        )

    def _partitioned(self, upstream: Transformation, keys: tuple[int, ...]) -> Transformation:
        partitioner = KeyGroupPartitioner(keys) if keys else GlobalPartitioner()
        return PartitionTransformation(
            name="key by" if keys else "global", schema=upstream.schema, input=upstream, partitioner=partitioner
        )
