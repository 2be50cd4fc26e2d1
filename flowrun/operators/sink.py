"""The sink operator: drives a connector's writer and hands what it pre-committed to the job master."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from typing import cast

import pyarrow as pa

from flowrun.api.metrics import Counter
from flowrun.api.sink import Committable, HearsOfSubmission, KeyedSinkWriter, SinkWriter, WriterContext
from flowrun.api.state import OperatorSnapshot
from flowrun.core.elements import LatencyMarker, RecordBatch
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.connector_errors import named
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.operators.kept_rows import KEPT_ROWS, kept_rows_of
from flowrun.operators.sink_constraints import NULL_ROWS_DROPPED, ConstraintEnforcer
from flowrun.state.committables import COMMITTABLES, committables_state, read_committables
from flowrun.state.kept_names import IDENTITY, identity_state, read_identity


class SinkOperator(AbstractOperator):
    """One subtask of a sink. It never commits by itself: committables go to `submit`, which makes them visible.

    What was pre-committed at a barrier waits in operator state until its checkpoint is complete, then is submitted with everything
    older, in order. After a restore the state holds committables of the restored, hence complete, checkpoint: they are submitted
    before the first row. Submitting one twice is harmless, since commits are idempotent under their ids.
    """

    def __init__(self, factory: SinkOperatorFactory) -> None:
        self._factory = factory
        self._place = f"sink '{factory.name}'"
        self._enforcer = ConstraintEnforcer(factory.sink.schema, factory.constraints, self._place)
        self._dropped: Counter | None = None
        self._submit: Callable[[Sequence[Committable]], None] | None = None
        self._writer: SinkWriter | None = None
        self._pending: dict[int, tuple[Committable, ...]] = {}
        self._asks_rolled = False
        self._kept_rows = kept_rows_of(factory.sink)
        self._restored_rows: pa.RecordBatch | None = None
        self._identity = ""
        self._next_checkpoint_id = 1

    def connect(self, submit: Callable[[Sequence[Committable]], None]) -> None:
        """Receive the way to hand committables over."""
        self._submit = submit

    @property
    def _open_writer(self) -> SinkWriter:
        if self._writer is None:
            raise InternalError(f"{self._place} is used before it was opened")
        return self._writer

    @property
    def _keyed_writer(self) -> KeyedSinkWriter:
        return cast(KeyedSinkWriter, self._open_writer)

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Committables of the restored checkpoint, and the rows that the writer kept."""
        if restored is None:
            return
        if self._kept_rows is not None and KEPT_ROWS in restored.keyed:
            self._restored_rows = self._kept_rows.read(restored.keyed[KEPT_ROWS])
        if IDENTITY in restored.operator:
            self._identity = read_identity(restored.operator[IDENTITY])
        if COMMITTABLES not in restored.operator:
            return
        for at, committable in read_committables(restored.operator[COMMITTABLES]):
            self._pending[at] = (*self._pending.get(at, ()), committable)

    def open(self) -> None:
        """Submit what a restored checkpoint pre-committed, then open a writer."""
        if self._submit is None:
            raise InternalError(f"{self._place} was not connected to a committer")
        context = self.context
        self._dropped = context.metrics.counter(NULL_ROWS_DROPPED)
        self._asks_rolled = context.unbounded and not context.checkpointing
        self._submit_pending(max(self._pending, default=0))
        attempt = uuid.uuid4().hex[:12]
        if not self._identity:
            run = f"{context.owner or attempt}/{context.operator_id}"
            self._identity = hashlib.sha256(run.encode()).hexdigest()[:12]
        self._next_checkpoint_id = context.first_checkpoint_id
        writer_context = WriterContext(
            subtask=context.subtask,
            parallelism=context.parallelism,
            attempt=attempt,
            clock=context.clock,
            processing_time=context.processing_time,
            metrics=context.metrics,
            pause=context.pause,
            owner=context.owner,
            operator_id=context.operator_id,
            key_groups=context.key_groups,
            identity=self._identity,
            next_checkpoint_id=(lambda: self._next_checkpoint_id) if context.owner else None,
            publishes_early=self._asks_rolled,
            staging=context.staging,
        )
        with named(self._place):
            self._writer = self._factory.sink.create_writer(writer_context)
            restored, self._restored_rows = self._restored_rows, None
            if restored is not None:
                self._keyed_writer.restore(restored)
            self._writer.open()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Enforce the constraints of the columns and write."""
        batch, dropped = self._enforcer.enforced(batch)
        if dropped:
            assert self._dropped is not None
            self._dropped.inc(dropped)
            if not batch.num_rows:
                return
        with named(self._place):
            self._open_writer.write(batch)
            rolled = self._open_writer.rolled() if self._asks_rolled else ()
        self._hand_over(rolled)

    def on_watermark(self, timestamp: int) -> None:
        """Tell the writer."""
        with named(self._place):
            self._open_writer.write_watermark(timestamp)

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        """The probe ends here: the task records how long it took to any operator without outputs."""

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Push out what is buffered and pre-commit it."""
        with named(self._place):
            self._open_writer.flush(end_of_input=False)
            committables = tuple(self._open_writer.prepare_commit())
        self._next_checkpoint_id = max(self._next_checkpoint_id, checkpoint_id + 1)
        if committables:
            self._pending[checkpoint_id] = committables

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """All committables whose checkpoint is not complete yet, this one's included, and the rows that the writer keeps."""
        entries = ((at, c) for at, committables in sorted(self._pending.items()) for c in committables)
        operator = {COMMITTABLES: committables_state(entries)}
        if self._kept_rows is None:
            return OperatorSnapshot(operator=operator)
        keyed = {KEPT_ROWS: self._kept_rows.table(self._keyed_writer.kept())}
        return OperatorSnapshot(keyed=keyed, operator={**operator, IDENTITY: identity_state(self._identity)})

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Submit everything pre-committed up to this checkpoint."""
        self._submit_pending(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Nothing is undone: what was pre-committed for it is part of the next checkpoint, whose state names it too."""

    def finish(self) -> None:
        """Push out and submit what is left. Earlier checkpoints that never completed are covered by the end of the job."""
        with named(self._place):
            self._open_writer.flush(end_of_input=True)
            last = self._open_writer.prepare_commit()
        self._submit_pending(max(self._pending, default=0))
        self._hand_over(last)

    def _submit_pending(self, checkpoint_id: int) -> None:
        for at in sorted(at for at in self._pending if at <= checkpoint_id):
            self._hand_over(self._pending.pop(at))

    def _hand_over(self, committables: Sequence[Committable]) -> None:
        if committables:
            assert self._submit is not None
            self._submit(tuple(committables))
            writer: object = self._writer
            if isinstance(writer, HearsOfSubmission):
                writer.submitted(committables)

    def close(self) -> None:
        """Close the writer, which discards what was never pre-committed; later calls do nothing."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with named(self._place):
                writer.close()
