"""Storage in memory with failures and pauses on demand, and jobs whose output shows whether every row came exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from runtime_fakes import InFlightInMemory, job, rows, vertex

from flowrun.api.operator import InputStatus
from flowrun.api.sink import Committable, WriterContext
from flowrun.api.source import Boundedness, Delivery, JsonValue, ReaderContext, SourceOutput, Split
from flowrun.api.state import KEY_GROUP_COLUMN, KeyGroupRange, OperatorSnapshot
from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointKind, RecordBatch
from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.graph.job_graph import JobGraph, JobSettings
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.operators.base import AbstractOperator
from flowrun.operators.factories import SinkOperatorFactory, SourceOperatorFactory
from flowrun.operators.implementations import create_operator
from flowrun.runtime.checkpoint.assembly import JobIdentity
from flowrun.runtime.jobmaster.commits import CommitCoordinator
from flowrun.runtime.jobmaster.job_state import OpenedState, RestorePoint
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    FileReference,
    KeyedTableState,
    OperatorSubtaskState,
    StateFile,
)
from flowrun.state.commit_log import LoggedCommit


class MemoryStorage(InFlightInMemory):
    """`CheckpointStorage` in memory. `before[phase]` is called first in `begin`, `write`, `finish`, `discard` and `retain`."""

    job_folder = "memory:/jobs/test"

    staging = ""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.files: dict[str, pa.Table] = {}
        self.checkpoints: dict[int, CheckpointMetadata] = {}
        self.savepoints: dict[str, CheckpointMetadata] = {}
        self.begun: list[str] = []
        self.discarded: list[str] = []
        self.before: dict[str, Callable[[int], None]] = {}
        self.closed = False

    def discard_staged(self, owner: str, keep: Any) -> int:
        return 0

    def _reach(self, phase: str, checkpoint_id: int) -> None:
        call = self.before.get(phase)
        if call is not None:
            call(checkpoint_id)

    def writer(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange) -> _MemoryWriter:
        return _MemoryWriter(self, operator_id, subtask)

    def read_keyed(self, state: Sequence[KeyedTableState], groups: KeyGroupRange, root: str) -> pa.Table:
        parts = []
        for table in state:
            for reference in table.files:
                rows = self.files[reference.file.path]
                column = rows[KEY_GROUP_COLUMN]
                parts.append(rows.filter(pc.and_(pc.greater_equal(column, groups.start), pc.less(column, groups.stop))))
        return pa.concat_tables(parts) if parts else state[0].schema.empty_table()

    def begin(self, checkpoint_id: int, kind: CheckpointKind, directory: str | None) -> str:
        self._reach("begin", checkpoint_id)
        target = (
            f"chk-{checkpoint_id}" if kind is CheckpointKind.CHECKPOINT else f"{directory}/savepoint-{checkpoint_id}"
        )
        self.begun.append(target)
        return target

    def finish(self, target: str, metadata: CheckpointMetadata) -> str:
        self._reach("finish", metadata.checkpoint_id)
        if metadata.kind is CheckpointKind.SAVEPOINT:
            self.savepoints[target] = metadata
        else:
            self.checkpoints[metadata.checkpoint_id] = metadata
        return target

    def discard(self, target: str, files: Iterable[StateFile]) -> None:
        self._reach("discard", 0)
        self.discarded.append(target)
        self.checkpoints.pop(int(target.rpartition("-")[2]), None)
        with self.lock:
            for file in files:
                self.files.pop(file.path, None)

    def retain(self, checkpoint_ids: Sequence[int]) -> None:
        self._reach("retain", 0)
        self.checkpoints = {n: m for n, m in self.checkpoints.items() if n in checkpoint_ids}

    def note_stop(self, checkpoint_id: int, savepoint: str) -> None:
        """Nobody looks for the newest checkpoint here."""

    def note_commits(self, commits: Sequence[LoggedCommit]) -> None:
        """Nobody goes back to an older checkpoint here."""

    def note_discarded(self, checkpoint_id: int) -> None:
        """As above."""

    def existing(self) -> Mapping[int, CheckpointMetadata]:
        return dict(self.checkpoints)

    def close(self) -> None:
        self.closed = True

    @property
    def newest(self) -> RestorePoint:
        """The last completed checkpoint."""
        return RestorePoint(self.checkpoints[max(self.checkpoints)], self.job_folder)


class _MemoryWriter:
    def __init__(self, storage: MemoryStorage, operator_id: str, subtask: int) -> None:
        self._storage = storage
        self._operator_id = operator_id
        self._subtask = subtask

    def write(
        self, checkpoint_id: int, target: str, kind: CheckpointKind, snapshot: OperatorSnapshot
    ) -> OperatorSubtaskState:
        self._storage._reach("write", checkpoint_id)
        keyed = {}
        tables = dict(snapshot.keyed)
        for name, segmented in snapshot.segmented.items():
            assert segmented.key is None, "the fake keeps bags only"
            tables[name] = pa.concat_tables([segmented.schema.empty_table(), *(s.rows() for s in segmented.segments)])
        for name, table in tables.items():
            path = f"{target}/{self._operator_id}-{name}-{self._subtask}"
            with self._storage.lock:
                self._storage.files[path] = table
            keyed[name] = KeyedTableState(table.schema, (FileReference(StateFile(path, table.nbytes, len(table), "")),))
        return OperatorSubtaskState(self._operator_id, keyed, dict(snapshot.operator))

    def completed(self, checkpoint_id: int) -> None:
        pass


def opened(
    job_graph: JobGraph,
    storage: MemoryStorage,
    *,
    restored: RestorePoint | None = None,
    lineage: str = "lineage",
    checkpoints: bool = True,
) -> OpenedState:
    """State as `open_job_state` would open it, in memory."""
    return OpenedState(
        job_graph=job_graph,
        storage=storage,
        identity=JobIdentity(lineage, storage.job_folder, None, {"name": job_graph.name}),
        directory="savepoints",
        takes_checkpoints=checkpoints,
        next_checkpoint_id=max([*storage.checkpoints, 0 if restored is None else restored.metadata.checkpoint_id]) + 1
        if storage.checkpoints or restored is not None
        else 1,
        retained=tuple(sorted(storage.checkpoints)),
        restored=restored,
        continued=restored is not None,
    )


class Numbers:
    """A source of the numbers 0 … total−1 in some splits, one row a poll; it holds once `release` numbers of each split were read."""

    schema = Schema.of(k=BIGINT, v=BIGINT)
    boundedness = Boundedness.BOUNDED
    delivery = Delivery.EXACTLY_ONCE

    def __init__(self, total: int, splits: int = 4, released: int | None = None) -> None:
        self.total = total
        self.splits = splits
        self.released = total if released is None else released
        self.enumerators: list[NumbersEnumerator] = []
        self.readers: list[NumbersReader] = []
        self.before_start: Callable[[], None] = lambda: None
        self.before_snapshot: Callable[[], None] = lambda: None

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> NumbersEnumerator:
        self.enumerators.append(NumbersEnumerator(self, restored))
        return self.enumerators[-1]

    def create_reader(self, context: ReaderContext) -> NumbersReader:
        self.readers.append(NumbersReader(self, context))
        return self.readers[-1]

    def release(self, released: int | None = None) -> None:
        """Let so many numbers of each split be read (all if None)."""
        self.released = self.total if released is None else released
        for reader in self.readers:
            reader.context.notify_available()


class NumbersEnumerator:
    discovery_interval_ms = None

    def __init__(self, source: Numbers, restored: Any) -> None:
        self.source = source
        self.restored = restored
        self.left = list(range(source.splits)) if restored is None else list(restored)
        self.started = False
        self.closed = False

    def start(self) -> None:
        self.started = True
        self.source.before_start()

    def next_split(self, subtask: int) -> Split | None:
        return Split(str(self.left[0]), {"split": self.left.pop(0), "read": 0}) if self.left else None

    @property
    def exhausted(self) -> bool:
        return not self.left

    def discover(self) -> None: ...

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        self.left[:0] = [int(split.split_id) for split in splits]

    def snapshot(self) -> JsonValue:
        self.source.before_snapshot()
        return list(self.left)

    def close(self) -> None:
        self.closed = True


class NumbersReader:
    """Split s holds the numbers that are s modulo the number of splits."""

    def __init__(self, source: Numbers, context: ReaderContext) -> None:
        self.source = source
        self.context = context
        self.mine: list[list[int]] = []
        self.no_more = False
        self.asked = False

    def start(self) -> None:
        if not self.mine:
            self._ask()

    def _ask(self) -> None:
        if not self.asked and not self.no_more:
            self.asked = True
            self.context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        for split in self.mine:
            number, read = split
            value = number + read * self.source.splits
            if value >= self.source.total:
                self.mine.remove(split)
                self._ask()
                return InputStatus.MORE_AVAILABLE
            if read < self.source.released:
                split[1] += 1
                output.emit(rows([value % 7], [value], times=False), str(number))
                return InputStatus.MORE_AVAILABLE
        self._ask()  # when all splits are held, too
        return InputStatus.END_OF_INPUT if self.no_more and not self.mine else InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Split]) -> None:
        self.asked = False
        self.mine += [[s.position["split"], s.position["read"]] for s in splits]  # type: ignore[list-item]

    def notify_no_more_splits(self) -> None:
        self.no_more = True

    def snapshot(self) -> Sequence[Split]:
        return [Split(str(number), {"split": number, "read": read}) for number, read in self.mine]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...

    def close(self) -> None: ...


COMMITS_LONG = [False]
"""The last one is that of new tables."""


@dataclass
class Table:
    """What a two-phase sink has written: `staged` is what nobody may see, `visible` what is committed."""

    staged: dict[str, list[int]] = field(default_factory=dict)
    visible: dict[str, list[int]] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    orphans: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    before_commit: Callable[[], None] = lambda: None
    before_abort: Callable[[], None] = lambda: None
    commits_long: bool = field(default_factory=lambda: COMMITS_LONG[-1])
    """Whether its committer runs beside the job master."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self) -> list[int]:
        return sorted(v for rows in self.visible.values() for v in rows)

    # The sink.
    schema = Schema.of(k=BIGINT, v=BIGINT)
    delivery = Delivery.EXACTLY_ONCE

    def create_writer(self, context: WriterContext) -> TableWriter:
        return TableWriter(self, context)

    def create_committer(self) -> TableCommitter:
        return TableCommitter(self)


class TableWriter:
    def __init__(self, table: Table, context: WriterContext) -> None:
        self._table = table
        self._context = context
        self._rows: list[int] = []
        self._parts = 0

    def open(self) -> None: ...

    def write(self, batch: RecordBatch) -> None:
        self._rows += batch.columns["v"].to_pylist()

    def write_watermark(self, timestamp_ms: int) -> None: ...

    def flush(self, end_of_input: bool) -> None: ...

    def prepare_commit(self) -> Sequence[Committable]:
        if not self._rows:
            return ()
        self._parts += 1
        commit_id = f"{self._context.attempt}-{self._context.subtask}-{self._parts}"
        with self._table.lock:
            self._table.staged[commit_id] = self._rows
        self._rows = []
        return (Committable(commit_id, {"n": self._parts}),)

    def rolled(self) -> Sequence[Committable]:
        return ()

    def close(self) -> None: ...


class Once:
    """Passes rows on; raises, once in all attempts together, when the `at`-th row of a subtask comes."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.raised = 0

    def create(self) -> AbstractOperator:
        once = self

        class Fails(AbstractOperator):
            seen = 0

            def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
                self.seen += batch.num_rows
                if once.at is not None and self.seen >= once.at:
                    once.at = None
                    once.raised += 1
                    raise OSError("the disk of the operator broke")
                self.output.emit(batch)

        return Fails()


def pipeline(
    source: Numbers,
    table: Table,
    *,
    parallelism: int = 2,
    between: Callable[[], Any] = lambda: Once(None).create(),
    checkpoint: CheckpointSettings | None = None,
    restart: RestartSettings | None = None,
    chained: bool = False,
    unbounded: bool = False,
) -> JobGraph:
    """source → between → sink, with keyed exchanges, or in one chain."""
    settings = JobSettings(checkpoint=checkpoint, restart=restart, unbounded=unbounded)
    read = partial(create_operator, SourceOperatorFactory(source))
    write = partial(create_operator, SinkOperatorFactory(table))
    if chained:
        whole = vertex("numbers", read, between, write, parallelism=parallelism, source=source, sink=table)
        return job(whole, settings=settings)
    numbers = vertex("numbers", read, parallelism=parallelism, source=source)
    middle = vertex("middle", between, parallelism=parallelism).read(numbers, KeyGroupPartitioner((0,)))
    sink = vertex("table", write, parallelism=parallelism, sink=table).read(middle, KeyGroupPartitioner((0,)))
    return job(numbers, middle, sink, settings=settings)


class TableCommitter:
    def __init__(self, table: Table) -> None:
        self._table = table
        self.commits_long = table.commits_long

    def commit(self, committables: Sequence[Committable]) -> None:
        self._table.before_commit()
        with self._table.lock:
            for c in committables:
                if c.commit_id not in self._table.visible:
                    self._table.visible[c.commit_id] = self._table.staged.pop(c.commit_id)

    def abort(self, committables: Sequence[Committable]) -> None:
        self._table.before_abort()
        with self._table.lock:
            for c in committables:
                assert c.commit_id not in self._table.visible, "committed data were aborted"
                self._table.staged.pop(c.commit_id, None)
                self._table.aborted.add(c.commit_id)

    def discard_orphans(self, owner: str, keep: Any) -> int:
        with self._table.lock:
            self._table.orphans.append((owner, frozenset(keep)))
            orphans = [c for c in self._table.staged if c not in keep]
            for commit_id in orphans:
                del self._table.staged[commit_id]
            return len(orphans)


class Crash:
    """What would be left on disk if the process died now: a copy of the storage and of what the sink has written."""

    def __init__(self, storage: MemoryStorage, table: Table) -> None:
        with storage.lock, table.lock:
            self.storage = MemoryStorage()
            self.storage.files = dict(storage.files)
            self.storage.checkpoints = dict(storage.checkpoints)
            self.table = Table(dict(table.staged), dict(table.visible), set(table.aborted))


def commit_all(commits: CommitCoordinator) -> None:
    """The last commit of a job; raises what goes wrong."""

    def failed(error: Exception) -> None:
        raise error

    commits.commit_all(lambda: None, failed)
