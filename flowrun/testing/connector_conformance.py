"""What every connector must keep to, as checks that tests of any connector call.

    check_source(source, expected_rows)
    check_sink(sink, batches, read_back)

A check raises `ContractViolationError` that says which promise was broken. No threads, no wall time.
"""

from __future__ import annotations

import itertools
import json
import pickle
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from flowrun.api.operator import InputStatus
from flowrun.api.sink import Committable, OrphanDiscarding, Sink, WriterContext
from flowrun.api.source import JsonValue, ReaderContext, Source, SourceReader, Split, SplitEnumerator
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.testing.metrics import RecordedMetrics
from flowrun.testing.output import ContractViolationError
from flowrun.testing.processing_time import ManualProcessingTime

Rows = list[tuple[Any, ...]]
_MAX_POLLS = 1_000_000
_CHECKPOINT_IDS = itertools.count(1)
_START_MS = 1_700_000_000_000
_IDLE_STEP_MS = 100
_BREATH_S = 0.01


def rows_in(batches: Iterable[RecordBatch]) -> Rows:
    """The rows of batches as tuples."""
    return [tuple(row.values()) for batch in batches for row in batch.columns.to_pylist()]


class SourceDrive:
    """Drives all readers of a source in turn, in one thread, as a job would.

    Attributes:
        emitted: what came out, in order.
        metrics: of all readers together.
        enumerator: hands out the splits.
    """

    def __init__(
        self,
        source: Source,
        *,
        parallelism: int = 1,
        batch_rows: int = 1000,
        enumerator_state: JsonValue = None,
        restored: Sequence[Split] = (),
    ) -> None:
        self.clock = ManualClock(_START_MS)
        self.processing_time = ManualProcessingTime(self.clock)
        self.metrics = RecordedMetrics()
        self.emitted: list[RecordBatch] = []
        self._source = source
        self._batch_rows = batch_rows
        self.enumerator: SplitEnumerator = source.create_enumerator(parallelism, self.clock, enumerator_state)
        self.enumerator.start()
        self._requests: deque[int] = deque()
        self._available = threading.Event()
        self.readers: list[SourceReader] = []
        for subtask in range(parallelism):
            reader = source.create_reader(self._context(subtask, parallelism))
            mine = list(restored[subtask::parallelism])
            if mine:
                reader.add_splits(mine)
            self.readers.append(reader)
        for reader in self.readers:
            reader.start()
        self._ended = [False] * parallelism

    def _context(self, subtask: int, parallelism: int) -> ReaderContext:
        return ReaderContext(
            subtask=subtask,
            parallelism=parallelism,
            batch_rows=self._batch_rows,
            clock=self.clock,
            metrics=self.metrics,
            request_split=lambda: self._requests.append(subtask),
            notify_available=self._available.set,
            processing_time=self.processing_time,
        )

    def emit(self, columns: RecordBatch, split_id: str) -> None:
        """`SourceOutput.emit`."""
        if columns.columns.schema != self._source.schema.arrow:
            raise ContractViolationError(
                f"the source declares {self._source.schema.arrow}, but emitted {columns.columns.schema}"
            )
        most = self._batch_rows if columns.row_kinds is None else self._batch_rows + 1  # an update is not cut in two
        if not 0 < columns.num_rows <= most:
            raise ContractViolationError(
                f"a batch of {columns.num_rows} rows where 1 to {self._batch_rows} are asked for"
            )
        self.emitted.append(columns)

    def emit_watermark(self, timestamp_ms: int, split_id: str) -> None:
        """`SourceOutput.emit_watermark`."""

    def advance(self, timestamp_ms: int, split_id: str) -> None:
        """`SourceOutput.advance`."""

    def mark_idle(self, split_id: str) -> None:
        """`SourceOutput.mark_idle`."""

    def answer_requests(self) -> None:
        """Serve readers that wait for a split."""
        for _ in range(len(self._requests)):
            subtask = self._requests.popleft()
            split = self.enumerator.next_split(subtask)
            if split is not None:
                self.readers[subtask].add_splits([split])
            elif self.enumerator.exhausted:
                self.readers[subtask].notify_no_more_splits()
            else:
                self._requests.append(subtask)

    def step(self) -> bool:
        """Poll each reader once; False when all have ended or none has anything."""
        active = False
        for subtask, reader in enumerate(self.readers):
            self.answer_requests()
            if self._ended[subtask]:
                continue
            status = reader.poll(self)
            self._ended[subtask] = status is InputStatus.END_OF_INPUT
            active = active or status is InputStatus.MORE_AVAILABLE
            self.answer_requests()
        return active or self._can_go_on()

    def _can_go_on(self) -> bool:
        if all(self._ended):
            return False
        if self.processing_time.pending:
            self.processing_time.advance(_IDLE_STEP_MS)
            return True
        self._available.wait(_BREATH_S)  # readers with threads of their own
        self._available.clear()
        return self.enumerator.discovery_interval_ms is None

    def run(self, polls: int | None = None) -> Rows:
        """Go on for so many rounds, or until nothing moves; all rows so far."""
        for _ in range(_MAX_POLLS if polls is None else polls):
            if not self.step():
                return rows_in(self.emitted)
        if polls is None:
            raise ContractViolationError(f"the source did not come to an end within {_MAX_POLLS} polls")
        return rows_in(self.emitted)

    def snapshot(self) -> tuple[JsonValue, list[Split]]:
        """State of the enumerator and unfinished splits of all readers, through JSON as a checkpoint stores them."""
        splits = [split for reader in self.readers for split in reader.snapshot()]
        stored = json.loads(
            json.dumps([self.enumerator.snapshot(), [[s.split_id, dict(s.position)] for s in splits]], allow_nan=False)
        )
        return stored[0], [Split(i, p) for i, p in stored[1]]

    def close(self) -> None:
        """Close everything, twice."""
        for _ in range(2):
            for reader in self.readers:
                reader.close()
            self.enumerator.close()


def check_source(
    source: Source,
    expected: Rows,
    *,
    parallelisms: Sequence[int] = (1, 2, 3),
    batch_rows: Sequence[int] = (1, 7, 1024),
    seed: int = 0,
    restarts: int = 8,
) -> None:
    """Check that a bounded source emits the expected rows once, however it is run, stopped and resumed.

    Args:
        source: gives the same rows each time it is read.
        expected: its rows, in any order.
        parallelisms: numbers of readers to try.
        batch_rows: batch sizes to try.
        seed: for the places where it is stopped.
        restarts: how many stop-and-resume runs to make.

    Raises:
        ContractViolationError: a promise was broken; says which.
    """
    source = pickle.loads(pickle.dumps(source))
    for parallelism in parallelisms:
        for rows in batch_rows:
            drive = SourceDrive(source, parallelism=parallelism, batch_rows=rows)
            _compare(drive.run(), expected, f"read at parallelism {parallelism} in batches of {rows}")
            drive.close()
    rng = random.Random(seed)
    for _ in range(restarts):
        _check_restarts(source, expected, rng, parallelisms, batch_rows)


def _check_restarts(
    source: Source, expected: Rows, rng: random.Random, parallelisms: Sequence[int], batch_rows: Sequence[int]
) -> None:
    emitted: Rows = []
    state: JsonValue = None
    splits: list[Split] = []
    for run in range(3):
        rows = rng.choice(batch_rows)
        drive = SourceDrive(
            source,
            parallelism=rng.choice(parallelisms),
            batch_rows=rows,
            enumerator_state=state,
            restored=splits,
        )
        polls = None if run == 2 else rng.randrange(0, 4 + len(expected) // rows)
        emitted += drive.run(polls)
        state, splits = drive.snapshot()
        drive.run(rng.randrange(3))  # rows after the snapshot are lost with the failure and must come again
        drive.close()
    _compare(emitted, expected, "stopped and resumed twice, at other parallelisms and batch sizes")


def _compare(actual: Rows, expected: Rows, how: str) -> None:
    given, wanted = Counter(map(repr, actual)), Counter(map(repr, expected))
    if given != wanted:
        lost, extra = list((wanted - given).elements()), list((given - wanted).elements())
        raise ContractViolationError(
            f"{how}: expected {len(expected)} rows, got {len(actual)}; {len(lost)} lost {lost[:3]}, {len(extra)} too many {extra[:3]}"
        )


def _no_pause(_ms: float) -> None:
    """A pause that takes no time."""


def writer_context(
    *,
    subtask: int = 0,
    parallelism: int = 1,
    attempt: str = "attempt0",
    clock: ManualClock | None = None,
    owner: str = "owner0",
    staging: str = "",
) -> WriterContext:
    """A writer's surroundings with a clock that the test moves. With `staging` every commit is of another checkpoint."""
    clock = clock or ManualClock(_START_MS)
    return WriterContext(
        subtask=subtask,
        parallelism=parallelism,
        attempt=attempt,
        clock=clock,
        processing_time=ManualProcessingTime(clock),
        metrics=RecordedMetrics(),
        pause=_no_pause,
        owner=owner,
        operator_id="operator0",
        next_checkpoint_id=partial(next, _CHECKPOINT_IDS) if staging else None,
        staging=staging,
    )


def check_sink(sink: Sink, batches: Sequence[RecordBatch], read_back: Callable[[], Rows], *, staging: str = "") -> None:
    """Check that a two-phase-commit sink shows rows only once they are committed, once, and drops what was not.

    If its committer finds orphans, what killed writers left goes, and what is still to be committed stays.

    Args:
        sink: writes to an empty place.
        batches: at least one batch of rows.
        read_back: the rows that a reader of the outside system sees now, in any order.
        staging: a folder for sinks whose rows wait beside the checkpoint: see `WriterContext.staging`.

    Raises:
        ContractViolationError: a promise was broken; says which.
    """
    sink = pickle.loads(pickle.dumps(sink))
    written = rows_in(batches)
    committed = _write(sink, batches, staging, "first")
    _expect(read_back(), [], "rows are visible before the commit")
    _commit_twice(sink, committed)
    _expect(read_back(), written, "after the commit (twice)")
    aborted = _write(sink, batches, staging, "second")
    for _ in range(2):
        _committer(sink).abort(aborted)
    _expect(read_back(), written, "after an abort (twice)")
    _committer(sink).abort(committed)
    _expect(read_back(), written, "an abort must not touch what was committed")
    writer = sink.create_writer(writer_context(attempt="third", staging=staging))
    writer.open()
    for batch in batches:
        writer.write(batch)
    for _ in range(2):
        writer.close()
    _expect(read_back(), written, "a writer was closed without preparing a commit")
    empty = _write(sink, [batch.slice(0, 0) for batch in batches], staging, "fourth")
    _commit_twice(sink, empty)
    _expect(read_back(), written, "batches without rows were committed")
    halves = _write(sink, batches, staging, "fifth")
    _committer(sink).commit(halves[:1])
    _check_orphans(sink, batches, halves, staging)
    _committer(sink).commit(halves)
    _expect(read_back(), written * 2, "a commit that had stopped half way was repeated")
    _check_orphans(sink, batches, [], staging)
    _expect(read_back(), written * 2, "looking for orphans must not touch what was committed")


def _check_orphans(sink: Sink, batches: Sequence[RecordBatch], pending: Sequence[Committable], staging: str) -> None:
    committer = _committer(sink)
    if not isinstance(committer, OrphanDiscarding):
        return
    killed = sink.create_writer(writer_context(attempt=f"killed{len(pending)}", staging=staging))
    killed.open()
    killed.write(batches[0])
    lost = len(killed.prepare_commit())
    killed.write(batches[0])  # never closed: the process is gone
    keep = [c.commit_id for c in pending]
    if committer.discard_orphans("another owner", keep):
        raise ContractViolationError("what belongs to another owner was discarded")
    found = committer.discard_orphans("owner0", keep)
    if found < lost:
        raise ContractViolationError(
            f"a killed writer left {lost} finished pieces and open ones; {found} were discarded"
        )
    if committer.discard_orphans("owner0", keep):
        raise ContractViolationError("orphans were found again")


def _write(sink: Sink, batches: Sequence[RecordBatch], staging: str, attempt: str) -> list[Committable]:
    """Write in two subtasks, with a commit prepared in the middle; what is to be committed, through JSON."""
    committables: list[Committable] = []
    for subtask in range(2):
        writer = sink.create_writer(writer_context(subtask=subtask, parallelism=2, attempt=attempt, staging=staging))
        writer.open()
        mine = batches[subtask::2]
        for i, batch in enumerate(mine):
            writer.write(batch)
            if i == len(mine) // 2:
                committables += writer.prepare_commit()
        writer.flush(True)
        committables += writer.prepare_commit()
        writer.close()
    stored = json.loads(json.dumps([[c.commit_id, dict(c.payload)] for c in committables]))
    if len({i for i, _ in stored}) != len(stored):
        raise ContractViolationError("two committables have one commit_id")
    return [Committable(i, p) for i, p in stored]


def _committer(sink: Sink) -> Any:
    committer = sink.create_committer()
    if committer is None:
        raise ContractViolationError("the sink has no committer, so nothing can be committed or aborted")
    return committer


def _commit_twice(sink: Sink, committables: Sequence[Committable]) -> None:
    for _ in range(2):
        _committer(sink).commit(committables)


def _expect(actual: Rows, expected: Rows, when: str) -> None:
    _compare(actual, expected, when)
