"""Snapshots that stay in the memory of the process: what subtasks remember is kept as it is, in Arrow tables that never change."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.source import JsonValue
from flowrun.api.state import KEY_GROUP_COLUMN, KeyGroupRange, OperatorSnapshot
from flowrun.core.elements import CheckpointKind, Event, RecordBatch
from flowrun.errors import InternalError
from flowrun.graph.job_graph import JobGraph
from flowrun.runtime.checkpoint.assembly import JobIdentity
from flowrun.runtime.jobmaster.job_state import OpenedState, RestorePoint
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    FileReference,
    InFlight,
    KeptElement,
    KeyedTableState,
    OperatorSubtaskState,
    StateFile,
    StoredRows,
)
from flowrun.state.commit_log import LoggedCommit
from flowrun.state.redistribution import materialised
from flowrun.state.storage.contract import SnapshotWriter

_ROOT = "memory:/"
_LINEAGE = "test"
_NOT_DESCRIBED: JsonValue = {}
"""What a savepoint says of its job: nobody reads it, and to draw a job graph takes as long as to run a small one."""


class MemoryStorage:
    """`CheckpointStorage` for one job after the other, each of which goes on from the newest savepoint of the one before."""

    job_folder = _ROOT
    staging = ""

    def __init__(self) -> None:
        self._tables: dict[str, pa.Table] = {}
        self._numbers = itertools.count()
        self._newest: CheckpointMetadata | None = None

    def open(self, job_graph: JobGraph) -> OpenedState:
        """State for a job that goes on from the newest savepoint; from the beginning if there is none."""
        newest = self._newest
        return OpenedState(
            job_graph=job_graph,
            storage=self,
            identity=JobIdentity(_LINEAGE, _ROOT, None, _NOT_DESCRIBED),
            directory=_ROOT,
            takes_checkpoints=False,
            next_checkpoint_id=1 if newest is None else newest.checkpoint_id + 1,
            restored=None if newest is None else RestorePoint(newest, _ROOT),
        )

    def keep(self, table: pa.Table) -> StateFile:
        """Keep rows under a name of their own."""
        name = str(next(self._numbers))
        self._tables[name] = table
        return StateFile(name, table.nbytes, table.num_rows, "")

    def writer(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange) -> SnapshotWriter:
        """See `SnapshotStorage.writer`."""
        return _MemoryWriter(self, operator_id)

    def read_keyed(self, state: Sequence[KeyedTableState], groups: KeyGroupRange, root: str) -> pa.Table:
        """See `SnapshotStorage.read_keyed`."""
        whole = pa.concat_tables([self._tables[reference.file.path] for s in state for reference in s.files])
        column = whole[KEY_GROUP_COLUMN]
        return whole.filter(pc.and_(pc.greater_equal(column, groups.start), pc.less(column, groups.stop)))

    def write_in_flight(self, target: str, in_flight: Sequence[InFlight]) -> tuple[InFlight, ...]:
        """The rows as they are, in memory."""
        return tuple(in_flight)

    def read_in_flight(
        self, channels: Sequence[Sequence[KeptElement]], root: str
    ) -> list[tuple[RecordBatch | Event, ...]]:
        """The rows as they are."""
        return [tuple(_in_memory(e) for e in elements) for elements in channels]

    def begin(self, checkpoint_id: int, kind: CheckpointKind, directory: str | None) -> str:
        """Nothing is to be made."""
        return f"{_ROOT}{checkpoint_id}"

    def finish(self, target: str, metadata: CheckpointMetadata) -> str:
        """The next job goes on from here."""
        self._newest = metadata
        return target

    def discard(self, target: str, files: Iterable[StateFile]) -> None:
        """Forget rows."""
        for file in files:
            self._tables.pop(file.path, None)

    def retain(self, checkpoint_ids: Sequence[int]) -> None:
        """There are savepoints only."""

    def note_stop(self, checkpoint_id: int, savepoint: str) -> None:
        """Nobody looks for it."""

    def note_commits(self, commits: Sequence[LoggedCommit]) -> None:
        """Nobody goes back behind them."""

    def discard_staged(self, owner: str, keep: Collection[str]) -> int:
        """Nothing is staged."""
        return 0

    def note_discarded(self, checkpoint_id: int) -> None:
        """Nobody looks for it."""

    def existing(self) -> Mapping[int, CheckpointMetadata]:
        """There are savepoints only."""
        return {}

    def close(self) -> None:
        """What is kept is for the next job."""


class _MemoryWriter:
    def __init__(self, storage: MemoryStorage, operator_id: str) -> None:
        self._storage = storage
        self._operator_id = operator_id

    def write(
        self, checkpoint_id: int, target: str, kind: CheckpointKind, snapshot: OperatorSnapshot
    ) -> OperatorSubtaskState:
        whole = materialised(snapshot)
        keyed = {
            name: KeyedTableState(table.schema, (FileReference(self._storage.keep(table)),))
            for name, table in whole.keyed.items()
        }
        return OperatorSubtaskState(self._operator_id, keyed, whole.operator)

    def completed(self, checkpoint_id: int) -> None:
        """Every savepoint is whole."""


def _in_memory(element: KeptElement) -> RecordBatch | Event:
    if isinstance(element, StoredRows):
        raise InternalError("rows in flight are in a file that nobody has written")
    return element
