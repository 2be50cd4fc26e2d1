"""The common part of sinks whose writes are visible at once: nothing to commit, nothing to keep."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.api.sink import Committable
from flowrun.core.elements import RecordBatch


class ImmediateWriter:
    """A `SinkWriter` without two-phase commit; subclasses override `write` and what else they need."""

    def open(self) -> None:
        """Nothing to acquire."""

    def write(self, batch: RecordBatch) -> None:
        """Write rows."""
        raise NotImplementedError

    def write_watermark(self, timestamp_ms: int) -> None:
        """Event time does not matter."""

    def flush(self, end_of_input: bool) -> None:
        """Nothing is buffered."""

    def prepare_commit(self) -> Sequence[Committable]:
        """Nothing to commit."""
        return ()

    def rolled(self) -> Sequence[Committable]:
        """Nothing to commit."""
        return ()

    def close(self) -> None:
        """Nothing to release."""
