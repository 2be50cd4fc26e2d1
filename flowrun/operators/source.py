"""The source operator: polls a connector's reader, gives rows their event time, computes columns, and sends watermarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.changelog import ChangelogMode, mode_of_source
from flowrun.api.functions import ColumnsKernel
from flowrun.api.operator import InputStatus
from flowrun.api.source import (
    Boundedness,
    KnowsCheckpoints,
    ReaderContext,
    ReadsSplitsTogether,
    SourceReader,
    Split,
)
from flowrun.api.state import OperatorSnapshot, OperatorState
from flowrun.core.elements import MIN_TIMESTAMP, RecordBatch
from flowrun.core.provided import provides
from flowrun.core.record import record
from flowrun.core.row_errors import LetterLimit, OnError, RowFault
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.connector_errors import named
from flowrun.operators.data_errors import NotNullCheck, evaluate
from flowrun.operators.event_time_output import EventTimeOutput, RestoredEventTime
from flowrun.operators.event_times import EventTimes
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.letter_limit import LETTER_COUNTS, LetterCounts
from flowrun.operators.row_failures import RowFailures
from flowrun.operators.split_watermarks import SplitEventTime

SPLITS = "splits"
_STATE_SCHEMA = pa.schema(
    [
        ("split_id", pa.string()),
        ("position", pa.string()),
        ("watermark", pa.int64()),
        ("idle", pa.bool_()),
        ("event_time", pa.int64()),
        ("until", pa.int64()),
    ]
)
"""`watermark` is what the split allows (NULL: it has sent nothing), `event_time` the last watermark of its subtask. `until`: rows of
the split with an event time before that are dropped, as a backfill has counted them (NULL: none are; absent in older state)."""
_TIME_STATE = "event_time"
_TIME_SCHEMA = pa.schema([("event_time", pa.int64())])
"""The last watermark of a subtask that has no split; what is restored of it counts for a subtask that has none either."""


@record
class _Rows:
    batch: RecordBatch
    split_id: str


@record
class _OwnWatermark:
    timestamp: int
    split_id: str
    always: bool = False


@record
class _IdleSplit:
    split_id: str


class _Polled:
    """What one poll brought, in order: sent on after the poll, so that errors downstream are not taken for the source's."""

    def __init__(self) -> None:
        self.items: list[_Rows | _OwnWatermark | _IdleSplit] = []

    def emit(self, columns: RecordBatch, split_id: str) -> None:
        """Keep rows."""
        self.items.append(_Rows(columns, split_id))

    def emit_watermark(self, timestamp_ms: int, split_id: str) -> None:
        """Keep a watermark of the source's own."""
        self.items.append(_OwnWatermark(timestamp_ms, split_id))

    def advance(self, timestamp_ms: int, split_id: str) -> None:
        """Keep a watermark that counts whatever the strategy is."""
        self.items.append(_OwnWatermark(timestamp_ms, split_id, always=True))

    def mark_idle(self, split_id: str) -> None:
        """Keep an idleness change."""
        self.items.append(_IdleSplit(split_id))

    def take(self) -> list[_Rows | _OwnWatermark | _IdleSplit]:
        """What was kept, once."""
        taken, self.items = self.items, []
        return taken


class ConnectorSourceOperator(AbstractOperator):
    """One subtask of a source."""

    inputs = 0

    def __init__(self, factory: SourceOperatorFactory) -> None:
        self._factory = factory
        self._place = f"source '{factory.name}'"
        self._polled = _Polled()
        self._upserts = mode_of_source(factory.source) is ChangelogMode.UPSERT
        self._not_null = NotNullCheck(factory.source.schema, self._place, upserts=self._upserts)
        self._listener: Callable[[], None] | None = None
        self._request_split: Callable[[], None] | None = None
        self._reader: SourceReader | None = None
        self._event_times: EventTimeOutput | None = None
        self._project: ColumnsKernel | None = None
        self._restored: list[Split] = []
        self._restored_times: RestoredEventTime | None = None
        self._until: dict[str, int] = {}
        """Of splits that a backfill has read before: event time below which it has counted all rows, ms."""
        self._backfilled: EventTimes | None = None
        self._failures: RowFailures | None = None
        self._bad_records: RowFailures | None = None
        self._restored_counts: OperatorState | None = None
        self._counts: LetterCounts | None = None
        self._read = 0
        """Rows of the current poll."""
        self._stopped = self._drain = False

    # ---- coordination

    def connect(self, request_split: Callable[[], None]) -> None:
        """Receive the way to ask for a split."""
        self._request_split = request_split

    def set_availability_listener(self, listener: Callable[[], None]) -> None:
        """Receive what to call, from any thread, when `emit_next` may have something again."""
        self._listener = listener

    def add_splits(self, splits: Sequence[Split]) -> None:
        """More to read."""
        with named(self._place):
            self._open_reader.add_splits(splits)
        self._expect(splits)
        self._notify_available()

    def _expect(self, splits: Sequence[Split]) -> None:
        """Splits that are read at the same time hold event time back from now on."""
        reader: object = self._reader
        if isinstance(reader, ReadsSplitsTogether) and reader.reads_splits_together:
            self._leave_finished_splits(1)
            self._out.expect(split.split_id for split in splits)

    def notify_no_more_splits(self) -> None:
        """All splits were dealt out."""
        with named(self._place):
            self._open_reader.notify_no_more_splits()
        self._notify_available()

    def stop(self, drain: bool) -> None:
        """End with the next `emit_next`; with `drain` as if the input had ended there."""
        self._stopped, self._drain = True, drain
        self._notify_available()

    def _notify_available(self) -> None:
        if self._listener is not None:
            self._listener()

    @property
    def _open_reader(self) -> SourceReader:
        if self._reader is None:
            raise InternalError(f"{self._place} is used before it was opened")
        return self._reader

    @property
    def _out(self) -> EventTimeOutput:
        assert self._event_times is not None
        return self._event_times

    # ---- life

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Splits with their positions and event times; handed to the reader when it opens."""
        if restored is None:
            return
        self._restored_counts = restored.operator.get(LETTER_COUNTS)
        states = (restored.operator.get(name) for name in (SPLITS, _TIME_STATE))
        rows, alone = ([] if state is None else state.rows.to_pylist() for state in states)
        self._restored = [Split(row["split_id"], orjson.loads(row["position"])) for row in rows]
        self._until = {row["split_id"]: row["until"] for row in rows if row.get("until") is not None}
        reached = [row["event_time"] for row in rows or alone]
        self._restored_times = RestoredEventTime(
            # of several old subtasks the one that was behind counts: none of its rows may become late
            min((MIN_TIMESTAMP if t is None else t for t in reached), default=MIN_TIMESTAMP),
            {
                row["split_id"]: SplitEventTime(row["watermark"], row["idle"])
                for row in rows
                if row["watermark"] is not None
            },
        )

    def open(self) -> None:
        """Compile the expressions, create and start the reader."""
        factory, context = self._factory, self.context
        if self._request_split is None:
            raise InternalError(f"{self._place} was not connected to a split enumerator")
        self._project = None if factory.projection is None else factory.projection.compile()
        self._event_times = EventTimeOutput(
            factory.strategy,
            context,
            self.output,
            self._place,
            self._restored_times,
            splits=True,
            bounded=factory.source.boundedness is Boundedness.BOUNDED,
            upserts=self._upserts,
        )
        self._failures = RowFailures(factory.errors, context, self.output)
        if factory.decoding.mode is OnError.DEAD_LETTER:
            self._bad_records = RowFailures(factory.decoding, context, self.output)
        if factory.letter_limit != LetterLimit():
            self._counts = LetterCounts(factory.letter_limit, self._place, self._restored_counts)
        if self._until:
            self._backfilled = EventTimes(factory.strategy, context, self._place)
        reader_context = ReaderContext(
            subtask=context.subtask,
            parallelism=context.parallelism,
            batch_rows=factory.batch_rows,
            clock=context.clock,
            metrics=context.metrics,
            request_split=self._request_split,
            notify_available=self._notify_available,
            processing_time=context.processing_time,
            reject=None if self._bad_records is None else self._bad_records.bad_record,
        )
        with named(self._place):
            self._reader = factory.source.create_reader(reader_context)
            if self._restored:
                self._reader.add_splits(self._restored)
            self._reader.start()
        self._event_times.start()
        self._expect(self._restored)
        context.execute(self._event_times.resume)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """A source has no input."""
        raise InternalError(f"{self._place} has no input, but was given rows")

    def emit_next(self) -> InputStatus:
        """Poll the reader once and send what it read; at the end of input the MAX watermark follows."""
        if self._stopped:
            if self._drain:
                self._out.finish()
            return InputStatus.END_OF_INPUT
        kept, undecoded = self._kept, self._undecoded
        self._read = 0
        with named(self._place):
            status = self._open_reader.poll(self._polled)
        if self._bad_records is not None:
            self._bad_records.send()
        for item in self._polled.take():
            if isinstance(item, _Rows):
                self._emit(item.batch, item.split_id)
            elif isinstance(item, _OwnWatermark):
                if item.split_id not in self._out.splits:
                    self._leave_finished_splits(1)
                send = self._out.advance if item.always else self._out.emit_watermark
                send(item.timestamp, item.split_id)
            else:
                self._out.mark_idle(item.split_id)
        self._leave_finished_splits(2)
        if self._counts is not None:
            letters = self._kept - kept
            self._counts.add(
                self._read + self._undecoded - undecoded, letters, at_end=status is InputStatus.END_OF_INPUT
            )
        if status is InputStatus.END_OF_INPUT:
            self._out.finish()
        return status

    @property
    def _undecoded(self) -> int:
        """How many records were put aside that cannot be decoded."""
        return 0 if self._bad_records is None else self._bad_records.letters_kept

    @property
    def _kept(self) -> int:
        """How many dead letters there were."""
        assert self._failures is not None
        return self._undecoded + self._failures.letters_kept

    def _emit(self, read: RecordBatch, split_id: str) -> None:
        self._read += read.num_rows
        if read.num_rows == 0:
            return
        if split_id in self._until:
            read = self._not_backfilled(read, self._until[split_id])
            if read.num_rows == 0:
                return
        if split_id not in self._out.splits:
            self._leave_finished_splits(1)
        failures = self._failures
        assert failures is not None
        if not failures.isolates:
            self._not_null.check_rows(read)
            self._out.emit(read, self._computed(read), split_id)
            return
        for valid, _ in failures.survivors(read, RowFault.NULL_VALUE, self._not_null.check_rows):
            for timed, _ in failures.survivors(valid, RowFault.NULL_TIME, self._out.check):
                for raw, rows in failures.survivors(timed, RowFault.EXPRESSION, self._computed):
                    self._out.emit(raw, rows, split_id)

    def _computed(self, read: RecordBatch) -> RecordBatch:
        if self._project is None:
            return read
        return read.with_columns(evaluate(self._project, read.columns, f"{self._place}: computed columns"))

    def _not_backfilled(self, read: RecordBatch, until: int) -> RecordBatch:
        """The rows that a backfill up to `until` has not counted: it read its splits to their ends, whatever the order of their rows."""
        assert self._backfilled is not None
        times = self._backfilled.read(read, MIN_TIMESTAMP).timestamps
        return read if times is None else read.filter(pc.greater_equal(times, until))

    def _leave_finished_splits(self, at_least: int) -> None:
        """If there are so many, splits that the reader no longer has do not hold event time back any more."""
        if len(self._out.splits) < at_least:
            return
        unfinished = {split.split_id for split in self._open_reader.snapshot()}
        for split_id in self._out.splits:
            if split_id not in unfinished:
                self._out.finish_split(split_id)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The unfinished splits, their positions as JSON, and the event time each has reached."""
        combined = self._out.combined
        rows: list[dict[str, object]] = []
        reader = self._open_reader
        unfinished = reader.snapshot()
        if provides(reader, KnowsCheckpoints):
            reader.notify_snapshot(checkpoint_id)
        if self._until:
            self._until = {s.split_id: self._until[s.split_id] for s in unfinished if s.split_id in self._until}
        for split in unfinished:
            progress = self._out.progress_of(split.split_id)
            rows.append(
                {
                    "split_id": split.split_id,
                    "position": orjson.dumps(dict(split.position)).decode(),
                    "watermark": None if progress is None else progress.watermark,
                    "idle": None if progress is None else progress.idle,
                    "event_time": combined,
                    "until": self._until.get(split.split_id),
                }
            )
        states = _operator_state(rows, combined)
        if self._counts is not None:
            states[LETTER_COUNTS] = self._counts.snapshot()
        return OperatorSnapshot(operator=states)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Let the reader acknowledge to the outside."""
        with named(self._place):
            self._open_reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        """Close the reader; later calls do nothing."""
        if self._event_times is not None:
            self._event_times.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            with named(self._place):
                reader.close()


def backfilled_state(splits: Sequence[Split], until: int | None) -> dict[str, OperatorState]:
    """The state of a subtask with these splits, of which a backfill has counted all rows with an event time before `until`, ms.

    Its event time has come to `until` − 1, in each of the splits; None: the source has no event time, and nothing is dropped.
    """
    reached = None if until is None else until - 1
    rows: list[dict[str, object]] = [
        {
            "split_id": split.split_id,
            "position": orjson.dumps(dict(split.position)).decode(),
            "watermark": reached,
            "idle": None if reached is None else False,
            "event_time": reached,
            "until": until,
        }
        for split in splits
    ]
    return _operator_state(rows, reached)


def _operator_state(rows: list[dict[str, object]], event_time: int | None) -> dict[str, OperatorState]:
    states = {SPLITS: OperatorState(pa.Table.from_pylist(rows, _STATE_SCHEMA))}
    if not rows and event_time is not None:
        states[_TIME_STATE] = OperatorState(pa.Table.from_pylist([{"event_time": event_time}], _TIME_SCHEMA))
    return states
