"""An output that keeps the rows of a call until it is known whether they count."""

from __future__ import annotations

from flowrun.api.operator import Output, OutputTag
from flowrun.core.elements import LatencyMarker, RecordBatch, Watermark, WatermarkStatus
from flowrun.errors import InternalError

KeptRows = list[tuple[OutputTag | None, RecordBatch]]
"""What was sent, in order, with the tags of side outputs; None: to the main output."""


class KeptOutput:
    """An output that keeps rows instead of sending them."""

    def __init__(self) -> None:
        self._kept: KeptRows = []

    def take(self) -> KeptRows:
        """What was sent since the last time."""
        kept, self._kept = self._kept, []
        return kept

    def emit(self, batch: RecordBatch) -> None:
        """Keep rows."""
        self._kept.append((None, batch))

    def emit_side(self, tag: OutputTag, batch: RecordBatch) -> None:
        """Keep rows of a side output."""
        self._kept.append((tag, batch))

    def emit_watermark(self, watermark: Watermark) -> None:
        """Never called: functions send rows only."""
        raise InternalError("a function sent a watermark")

    def emit_status(self, status: WatermarkStatus) -> None:
        """Never called."""
        raise InternalError("a function sent an idleness change")

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Never called."""
        raise InternalError("a function sent a latency marker")


def send_kept(kept: KeptRows, output: Output) -> None:
    """Send rows that were kept."""
    for tag, batch in kept:
        if tag is None:
            output.emit(batch)
        else:
            output.emit_side(tag, batch)
