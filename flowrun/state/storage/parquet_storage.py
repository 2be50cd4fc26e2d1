"""What tasks write and read state through, by the job's folder alone: a value that may be sent to other processes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from flowrun.api.state import KeyGroupRange
from flowrun.core.elements import Event, RecordBatch
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.checkpoints import InFlight, KeptElement, KeyedTableState
from flowrun.state.storage.contract import SnapshotWriter
from flowrun.state.storage.in_flight_files import load_in_flight, store_in_flight
from flowrun.state.storage.keyed_reader import read_keyed_rows
from flowrun.state.storage.names import STAGED_FOLDER
from flowrun.state.storage.other_checkpoints import offering_another
from flowrun.state.storage.parquet_read import DamagedFileError
from flowrun.state.storage.staged_files import discard_staged
from flowrun.state.storage.state_path import StatePath
from flowrun.state.storage.writer import KeyedWriter


@record(slots=False)
class ParquetStorage:
    """`SnapshotStorage` of the job whose folder is `root`; holds no state and no lock. Thread-safe."""

    root: StatePath

    @property
    def staging(self) -> str:
        """Where rows wait for their commit; see `SnapshotStorage.staging`."""
        return (self.root / STAGED_FOLDER).uri

    def discard_staged(self, owner: str, keep: Collection[str]) -> int:
        """Remove rows that wait for nothing any more; see `CheckpointStorage.discard_staged`."""
        return discard_staged(self.root / STAGED_FOLDER, owner, keep)

    def writer(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange) -> SnapshotWriter:
        """The writer of one operator in one subtask and attempt."""
        return KeyedWriter(operator_id, name, subtask, groups, self.root)

    def read_keyed(self, state: Sequence[KeyedTableState], groups: KeyGroupRange, root: str) -> pa.Table:
        """The live rows of some key groups; see `SnapshotStorage.read_keyed`."""
        return read_keyed(state, groups, self.root.located(root))

    def write_in_flight(self, target: str, in_flight: Sequence[InFlight]) -> tuple[InFlight, ...]:
        """Write rows in flight; see `SnapshotStorage.write_in_flight`."""
        folder = self.root.located(target)
        return store_in_flight(folder, f"{folder.name}/", in_flight)

    def read_in_flight(
        self, channels: Sequence[Sequence[KeptElement]], root: str
    ) -> list[tuple[RecordBatch | Event, ...]]:
        """Rows in flight; see `SnapshotStorage.read_in_flight`."""
        folder = self.root.located(root)
        try:
            return load_in_flight(folder, channels)
        except DamagedFileError as error:
            raise StateError(error.message, hint=offering_another(folder, error.path)) from error


def read_keyed(state: Sequence[KeyedTableState], groups: KeyGroupRange | None, root: StatePath) -> pa.Table:
    """The live rows of some key groups (of all, if None) of a table of several old subtasks, whose files' paths start at `root`.

    Raises:
        StateError: a file is missing, truncated or altered; says which complete checkpoint could be used instead.
    """
    try:
        return read_keyed_rows(state, groups, root)
    except DamagedFileError as error:
        raise StateError(error.message, hint=offering_another(root, error.path)) from error
