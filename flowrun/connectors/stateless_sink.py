"""The base of writers whose rows are visible at once: there is nothing to commit and no state."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.api.sink import Committable
from flowrun.core.elements import RecordBatch


class ImmediateWriter:
    """A `SinkWriter` without two-phase commit. Subclasses override `write`, and other methods if they need to."""

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
