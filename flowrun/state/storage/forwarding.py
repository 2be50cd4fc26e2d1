"""What tasks write and read through, for those who have it from another storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowrun.api.state import KeyGroupRange
from flowrun.core.elements import Event, RecordBatch
from flowrun.state.checkpoints import InFlight, KeptElement, KeyedTableState
from flowrun.state.storage.contract import SnapshotStorage, SnapshotWriter

if TYPE_CHECKING:
    import pyarrow as pa


class ForwardedSnapshots:
    """The calls of `SnapshotStorage` that write and read, forwarded to the storage that `_snapshots` gives."""

    def _snapshots(self) -> SnapshotStorage:
        raise NotImplementedError

    def writer(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange) -> SnapshotWriter:
        """See `SnapshotStorage.writer`."""
        return self._snapshots().writer(operator_id, name, subtask, groups)

    def read_keyed(self, state: Sequence[KeyedTableState], groups: KeyGroupRange, root: str) -> pa.Table:
        """See `SnapshotStorage.read_keyed`."""
        return self._snapshots().read_keyed(state, groups, root)

    def write_in_flight(self, target: str, in_flight: Sequence[InFlight]) -> tuple[InFlight, ...]:
        """See `SnapshotStorage.write_in_flight`."""
        return self._snapshots().write_in_flight(target, in_flight)

    def read_in_flight(
        self, channels: Sequence[Sequence[KeptElement]], root: str
    ) -> list[tuple[RecordBatch | Event, ...]]:
        """See `SnapshotStorage.read_in_flight`."""
        return self._snapshots().read_in_flight(channels, root)
