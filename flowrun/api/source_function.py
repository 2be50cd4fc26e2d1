"""Run/cancel sources: the contract of a source that owns its loop, run in a thread of its own.

The simple way to write a source: one function that reads until it is done or cancelled. Where a source can be polled and has
splits, implement `flowrun.api.source.Source` instead. Names after Apache Flink's `SourceFunction` and `SourceContext`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from flowrun.api.source import JsonValue


class SourceContext(Protocol):
    """What a running source function sends with. All calls come from its own thread and may block: that is back pressure.

    Every call raises `JobCancelledError` once the source is cancelled; let it pass.
    """

    def collect(self, columns: pa.RecordBatch, *, position: Mapping[str, JsonValue] | None = None) -> None:
        """Send rows; their event time comes from the watermark strategy.

        `position` says where to go on after exactly these rows: after a restart `run` finds it in `restored_position`.
        """
        ...

    def collect_with_timestamps(
        self, columns: pa.RecordBatch, timestamps: pa.Int64Array, *, position: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Send rows with their event times, int64 ms, no NULL."""
        ...

    def collect_row(
        self, row: Mapping[str, Any], timestamp: int | None = None, *, position: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Send one row, by column names, with its event time in ms if it has one. Rows that wait for the job become one batch."""
        ...

    def emit_watermark(self, timestamp_ms: int) -> None:
        """No row at or below this event time follows. Counts unless a watermark strategy makes watermarks."""
        ...

    def mark_as_temporarily_idle(self) -> None:
        """Nothing is expected for a while; the next rows make the source active again."""
        ...

    @property
    def restored_position(self) -> Mapping[str, JsonValue]:
        """The split's position: as the enumerator made it, or as last sent with rows before the restart."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether `run` should return; for loops that wait for the outside with time-outs."""
        ...


class SourceFunction(Protocol):
    """A source that runs in a thread of its own."""

    def run(self, context: SourceContext) -> None:
        """Read and send until the input ends (then return) or `cancel` was called. What it raises fails the job."""
        ...

    def cancel(self) -> None:
        """Make `run` return soon, e.g. close the socket that it reads. Called from another thread, perhaps after `run` returned."""
        ...
