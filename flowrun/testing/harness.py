"""The operator harness: one operator on its own, driven by hand, without threads and without wall time.

    harness = OperatorHarness(CalcFactory(condition, projection), schema=Schema.of(id=BIGINT))
    harness.push({"id": [1, 2, 3]}, timestamps=[10, 20, 30])
    harness.watermark(30)
    assert harness.rows() == [(2,)]

Between two calls everything is at rest: mails of the operator's mailbox and processing-time callbacks that are due have run.
To test recovery, `snapshot()` one or several harnesses and `OperatorHarness.restore(...)` from them at any parallelism.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from flowrun.api.coordination import CommittingSink
from flowrun.api.operator import OperatorContext, OperatorRecipe, OperatorSpec, OutputTag, StreamOperator
from flowrun.api.sink import Committable
from flowrun.api.state import OperatorSnapshot
from flowrun.core.clock import ManualClock
from flowrun.core.elements import ACTIVE, IDLE, MAX_TIMESTAMP, LatencyMarker, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.schema import Schema
from flowrun.operators.implementations import create_operator
from flowrun.state.key_groups import key_group_range, key_groups, subtask_of
from flowrun.state.redistribution import materialised, redistribute
from flowrun.testing.metrics import RecordedMetrics
from flowrun.testing.output import CollectedOutput, Emitted
from flowrun.testing.processing_time import ManualProcessingTime

Columns = Mapping[str, Sequence[Any] | pa.Array]


class OperatorHarness:
    """Drives one subtask of one operator and keeps what it sends.

    Not thread-safe; everything runs in the caller's thread. Rows go in with `push`, come out with `rows`, `side_rows`,
    `watermarks`, or all in order with `log`. Usable as a context manager that closes the operator.

    Args:
        recipe: an operator factory, or an operator that was not set up yet.
        schema: columns of the input (or of each input); gives `push` of Python lists their types. Inferred if absent.
        inputs: number of inputs.
        state_keys: key columns (positions) of each input; with them `push` keeps only rows whose key group this subtask owns,
            as the exchange would, so that a test may push everything to every subtask.
        restored: what the operator restores; see `restore` for snapshots of several subtasks.
        clock: moved only by `advance_processing_time`.
        open: whether to run setup, initialize_state and open now; else the test calls `start`.

    Attributes:
        operator: the operator under test.
        output: what it sent (`CollectedOutput`).
        metrics: its metrics (`RecordedMetrics`).
        committables: what a sink handed over for committing.
    """

    def __init__(
        self,
        recipe: OperatorRecipe | StreamOperator,
        *,
        schema: Schema | Sequence[Schema] | None = None,
        inputs: int = 1,
        state_keys: Sequence[Sequence[int]] | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        clock: ManualClock | None = None,
        restored: OperatorSnapshot | None = None,
        name: str = "operator",
        unbounded: bool = False,
        checkpointing: bool = False,
        object_reuse: bool = True,
        open: bool = True,
    ) -> None:
        self.operator: Any = create_operator(recipe) if _is_recipe(recipe) else recipe
        self.clock = clock if clock is not None else ManualClock()
        self.processing_time = ManualProcessingTime(self.clock)
        self.metrics = RecordedMetrics()
        self.output = CollectedOutput()
        self.committables: list[Committable] = []
        self._inputs = inputs
        self._schemas = _per_input(schema, inputs)
        self._state_keys = state_keys
        self._restored = restored
        self._mails: deque[Callable[[], None]] = deque()
        self._checkpoints = 0
        self._started = self._closed = False
        self.context = OperatorContext(
            operator_id="0" * 32,
            name=name,
            uid=None,
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            key_groups=key_group_range(subtask, parallelism, max_parallelism),
            clock=self.clock,
            processing_time=self.processing_time,
            metrics=self.metrics,
            execute=self._mails.append,
            object_reuse=object_reuse,
            unbounded=unbounded,
            checkpointing=checkpointing,
            pause=self._pause,
            speaks_for_all=subtask == 0,
        )
        if open:
            self.start()

    @classmethod
    def restore(
        cls,
        factory: OperatorRecipe,
        snapshots: Sequence[OperatorSnapshot],
        *,
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        **options: Any,
    ) -> OperatorHarness:
        """A new subtask of the operator, restored from the snapshots of all old subtasks (in their order).

        Keyed state is cut to the new subtask's key groups, operator state follows its mode; `options` are the constructor's.
        """
        restored = redistribute(snapshots, subtask, parallelism, max_parallelism)
        return cls(
            factory,
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            restored=restored,
            **options,
        )

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Set up, restore and open the operator; the constructor has done it unless told not to."""
        self._started = True
        self.operator.setup(self.context, self.output)
        self._connect()
        self.output.closed_for = "before it is opened"
        self.operator.initialize_state(self._restored)
        self.output.closed_for = None
        self.operator.open()
        self.settle()

    def _pause(self, ms: float) -> None:
        # A blocked subtask runs no mails; they follow when the harness settles.
        self.clock.advance(round(ms))

    def _connect(self) -> None:
        if isinstance(self.operator, CommittingSink) and not hasattr(self.operator, "emit_next"):
            self.operator.connect(self.committables.extend)

    # ---- what goes in

    def push(
        self,
        rows: RecordBatch | pa.RecordBatch | Columns,
        timestamps: Sequence[int] | None = None,
        input_index: int = 0,
        *,
        row_kinds: Sequence[int] | None = None,
    ) -> None:
        """Process rows, given as a batch or as columns, with their event times in ms; an empty push does nothing."""
        batch = self.batch(rows, timestamps, input_index, row_kinds=row_kinds)
        if self._state_keys is not None and self._state_keys[input_index]:
            batch = self._own_rows(batch, self._state_keys[input_index])
        if batch.num_rows:
            self.operator.process_batch(batch, input_index)
        self.settle()

    def batch(
        self,
        rows: RecordBatch | pa.RecordBatch | Columns,
        timestamps: Sequence[int] | None = None,
        input_index: int = 0,
        *,
        row_kinds: Sequence[int] | None = None,
    ) -> RecordBatch:
        """The batch that `push` would process."""
        if isinstance(rows, RecordBatch):
            return rows
        columns = rows if isinstance(rows, pa.RecordBatch) else _columns(rows, self._schemas[input_index])
        return RecordBatch(
            columns,
            None if timestamps is None else pa.array(timestamps, pa.int64()),
            None if row_kinds is None else pa.array(row_kinds, pa.int8()),
        )

    def watermark(self, timestamp: int, input_index: int = 0) -> None:
        """Advance the event time of one input, ms."""
        self.operator.process_watermark(Watermark(timestamp), input_index)
        self.settle()

    def status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """Make one input idle or active."""
        self.operator.process_status(status, input_index)
        self.settle()

    def idle(self, input_index: int = 0) -> None:
        """Make one input idle."""
        self.status(IDLE, input_index)

    def active(self, input_index: int = 0) -> None:
        """Make one input active again."""
        self.status(ACTIVE, input_index)

    def latency_marker(self, marker: LatencyMarker) -> None:
        """Pass a probe through."""
        self.operator.process_latency_marker(marker)
        self.settle()

    def advance_processing_time(self, ms: int) -> None:
        """Move the clock on by `ms`; callbacks run in order, each at its own time."""
        self.processing_time.advance(ms)
        self.settle()

    def settle(self) -> None:
        """Run the mails and due callbacks until there are none."""
        while self._mails:
            self._mails.popleft()()
        self.processing_time.run_due()
        while self._mails:
            self._mails.popleft()()

    def end_input(self, input_index: int | None = None, *, drain: bool = True) -> None:
        """End one input, or all of them and then `finish`; with `drain` a MAX watermark comes first, as at the end of bounded input."""
        for index in range(self._inputs) if input_index is None else (input_index,):
            if drain:
                self.operator.process_watermark(Watermark(MAX_TIMESTAMP), index)
            self.operator.end_input(index)
        if input_index is None:
            self.operator.finish()
        self.settle()

    def close(self) -> None:
        """Close the operator, once."""
        if self._started and not self._closed:
            self._closed = True
            self.output.closed_for = "while it is closed"
            self.operator.close()

    # ---- checkpoints

    def snapshot(self, checkpoint_id: int | None = None) -> OperatorSnapshot:
        """Prepare and take a snapshot, with the next checkpoint id unless given. Emitting while it is taken is an error.

        Tables in segments are in `keyed`, as an operator restores them.
        """
        self._checkpoints = self._checkpoints + 1 if checkpoint_id is None else checkpoint_id
        self.operator.prepare_snapshot(self._checkpoints)
        self.output.closed_for = "while it is snapshotted"
        try:
            taken: OperatorSnapshot = self.operator.snapshot_state(self._checkpoints)
        finally:
            self.output.closed_for = None
        self.settle()
        return materialised(taken)

    def complete_checkpoint(self, checkpoint_id: int | None = None) -> None:
        """Tell the operator that the last (or the given) checkpoint is durable."""
        self.operator.notify_checkpoint_complete(self._checkpoints if checkpoint_id is None else checkpoint_id)
        self.settle()

    def abort_checkpoint(self, checkpoint_id: int | None = None) -> None:
        """Tell the operator that the last (or the given) checkpoint will not complete."""
        self.operator.notify_checkpoint_aborted(self._checkpoints if checkpoint_id is None else checkpoint_id)
        self.settle()

    # ---- what came out

    @property
    def elements(self) -> list[Emitted]:
        """Everything sent since the start or the last `clear`, in order."""
        return self.output.elements

    def rows(self) -> list[tuple[Any, ...]]:
        """Rows of the main output."""
        return self.output.rows()

    def changes(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Rows of the main output with their kinds."""
        return self.output.changes()

    def timestamps(self) -> list[int | None]:
        """Event times of the rows of the main output."""
        return self.output.timestamps()

    def side_rows(self, tag: OutputTag | str) -> list[tuple[Any, ...]]:
        """Rows of a side output."""
        return self.output.side_rows(tag)

    def watermarks(self) -> list[int]:
        """Watermarks sent."""
        return self.output.watermarks()

    def log(self) -> list[object]:
        """Everything in order, rows as tuples."""
        return self.output.log()

    def clear(self) -> None:
        """Forget what came out so far."""
        self.output.clear()

    def _own_rows(self, batch: RecordBatch, keys: Sequence[int]) -> RecordBatch:
        context = self.context
        groups = key_groups([batch.columns.column(k) for k in keys], context.max_parallelism)
        owners = subtask_of(groups, context.parallelism, context.max_parallelism)
        return batch.take(pa.array(np.flatnonzero(owners == context.subtask)))


def _is_recipe(given: OperatorRecipe | StreamOperator) -> TypeGuard[OperatorRecipe]:
    return isinstance(given, OperatorSpec) or hasattr(given, "create")


def _per_input(schema: Schema | Sequence[Schema] | None, inputs: int) -> Sequence[Schema | None]:
    if schema is None:
        return [None] * inputs
    return [schema] * inputs if isinstance(schema, Schema) else schema


def _columns(columns: Columns, schema: Schema | None) -> pa.RecordBatch:
    if schema is None:
        return pa.RecordBatch.from_pydict(dict(columns))
    return pa.RecordBatch.from_arrays(
        [
            column if isinstance(column, pa.Array) else pa.array(column, field.type.arrow)
            for field in schema
            for column in (columns[field.name],)
        ],
        schema=schema.arrow,
    )
