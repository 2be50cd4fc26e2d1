"""Windows on their way into an aggregation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OutputTag
from flowrun.core.semantics import NullKeys, TimeDomain
from flowrun.datastream.window_aggregation import SessionGap, WindowAggregation
from flowrun.errors import PipelineError
from flowrun.operators.timed.assigners import AlignedSlices

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream


class WindowedStream:
    """Rows by key and window, waiting for an aggregation. Settings return the same object."""

    def __init__(self, stream: DataStream, keys: tuple[int, ...], windows: AlignedSlices | SessionGap) -> None:
        self._stream = stream
        self._aggregation = WindowAggregation(
            stream.schema, keys, windows, pre_aggregates=stream.environment.local_aggregation
        )

    def allowed_lateness(self, lateness_ms: int) -> WindowedStream:
        """Keep windows for so long (event time) after they fired; late rows fire them again."""
        if lateness_ms < 0:
            raise PipelineError.of(f"allowed_lateness must not be negative, got {lateness_ms} ms")
        self._aggregation = replace(self._aggregation, allowed_lateness_ms=lateness_ms)
        return self

    def side_output_late_data(self, tag: str) -> WindowedStream:
        """Send rows that are too late to a side output: `result.get_side_output(tag)`."""
        self._aggregation = replace(self._aggregation, late_tag=OutputTag(tag, self._stream.schema))
        return self

    def in_processing_time(self) -> WindowedStream:
        """Let the machine's clock assign rows to windows and close them."""
        self._aggregation = replace(self._aggregation, domain=TimeDomain.PROCESSING)
        return self

    def null_keys(self, policy: NullKeys) -> WindowedStream:
        """What happens to rows whose key is NULL; by default they form a group."""
        self._aggregation = replace(self._aggregation, null_keys=policy)
        return self

    def aggregate(self, *aggregates: BoundAggregate, name: str = "window") -> DataStream:
        """One row a key and window: keys, window_start, window_end, aggregates.

        With aligned windows rows are aggregated before the shuffle too, where that cannot change the result.
        """
        transformation = self._aggregation.transformation(self._stream.transformation, aggregates, name)
        late = self._aggregation.late_tag
        return self._stream.derived(transformation, () if late is None else (late,))
