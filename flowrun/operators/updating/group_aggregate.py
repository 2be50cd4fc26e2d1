"""The updating group aggregation: the results of groups without end, kept up to date as rows come and are taken back.

Each batch is a mini-batch: a group whose result the batch changes sends one −U/+U pair, a new one +I, one whose last row was taken back −D.
That is never more than a row at a time would send, as Apache Flink does, and folds to the same. As in Flink an update is sent although
the result is equal if state has a time to live (a reader with the same time to live must not forget what is in use), rows that are
taken back without having been there are dropped (and counted), and a group that has expired begins anew with +I.
"""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools
from flowrun.core.elements import RecordBatch
from flowrun.operators.base import AbstractOperator
from flowrun.operators.first_timer import FirstTimer
from flowrun.operators.keyed.key_rows import NUM_RECORDS_EXPIRED, NUM_STATE_ROWS
from flowrun.operators.updating.changes import change_batch
from flowrun.operators.updating.factories import GroupAggregateFactory
from flowrun.operators.updating.group_feeds import PartialFeed, RowFeed
from flowrun.operators.updating.group_state import GroupChanges, GroupState, filtered

UNKNOWN_ROWS_DROPPED = "numUnknownRetractionsDropped"
"""Metric: rows that were taken back although they were never added, or had expired."""

_SWEEPS_PER_TTL = 2


class GroupAggregateOperator(AbstractOperator):
    """Sends the changes of each batch; see the module."""

    def __init__(self, factory: GroupAggregateFactory) -> None:
        self._factory = factory
        self._layout = factory.layout
        self._schema = factory.output_schema.arrow
        self._compared = range(len(factory.keys), len(factory.output_schema))
        self._ttl_ms = factory.ttl_ms
        # without aggregates (DISTINCT) there is nothing to update: such a result only inserts and deletes
        self._repeats = factory.ttl_ms > 0 and bool(factory.aggregates)
        self._next_sweep: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        self._dropped = context.metrics.counter(UNKNOWN_ROWS_DROPPED)
        self._state = GroupState(self._layout, context.max_parallelism, self._ttl_ms)
        context.metrics.gauge(NUM_RECORDS_EXPIRED, lambda: self._state.expired)
        context.metrics.gauge(NUM_STATE_ROWS, lambda: len(self._state))
        self._timer = FirstTimer(context.processing_time, lambda: self._next_sweep, self._sweep)

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the groups."""
        if restored is not None:
            self._state.restore(restored, self._now())

    def open(self) -> None:
        """Wait for groups to expire."""
        self._plan_sweep()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The groups as they are now."""
        return OperatorSnapshot(segmented=self._state.snapshot())

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Fold rows into their groups and send what that changes."""
        feed = PartialFeed(self._layout, batch) if self._factory.partial_input else RowFeed(self._layout, batch)
        changes = self._state.apply(feed, self._now())
        if changes.dropped:
            self._dropped.inc(changes.dropped)
        sent = change_batch(
            self._rows(changes, changes.had, changes.before),
            changes.had,
            self._rows(changes, changes.has, changes.after),
            changes.has,
            compare=self._compared,
            repeat=self._repeats,
        )
        self._state.compact()
        if self._ttl_ms and self._next_sweep is None:
            self._plan_sweep()
        if sent is not None:
            self.output.emit(sent)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._timer.close()

    def _rows(self, changes: GroupChanges, chosen: Bools, results: list[pa.Array]) -> pa.RecordBatch | None:
        if not chosen.any():
            return None
        return pa.RecordBatch.from_arrays([*filtered(changes.keys, chosen), *results], schema=self._schema)

    # ---- time to live

    def _now(self) -> int:
        return self.context.processing_time.now_ms() if self._ttl_ms else 0

    def _plan_sweep(self) -> None:
        """Look for expired groups now and then, as long as there are groups: keys that never come again must not stay."""
        waits = self._ttl_ms > 0 and len(self._state) > 0
        self._next_sweep = self._now() + max(self._ttl_ms // _SWEEPS_PER_TTL, 1) if waits else None
        self._timer.rearm()

    def _sweep(self, timestamp: int) -> None:
        self._state.forget_expired(timestamp)
        self._state.compact()
        self._plan_sweep()
