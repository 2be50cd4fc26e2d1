"""OVER of whole partitions over bounded input: rows wait for the end, and each is sent once, with its result.

What is sent at the end is what a correcting OVER would have come to, without the results in between, which may be such that what is
computed from them fails: a share of a sum that is 0 for a while. No watermark passes before the end, so that no row is late behind it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.over.changelog_over import ChangelogOverOperator, Merged
from flowrun.operators.over.factories import EVENT_TIME, WAITING, ChangelogOverFactory
from flowrun.operators.ranking.order import differs_from_previous, sorted_order
from flowrun.operators.ranking.removals import find_removals

_PART_ROWS = 256 * 1024
_OUTPUT_ROWS = 64 * 1024


class FinalOverOperator(ChangelogOverOperator):
    """Keeps the rows that are there, and sends them with the highest watermark."""

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows."""
        table = None if restored is None else restored.keyed.get(WAITING)
        if table is not None and table.num_rows:
            self._state.restore(table)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that changed since the last snapshot."""
        return OperatorSnapshot(segmented={WAITING: self._state.store.snapshot_table()})

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Remember rows that come, forget those that are taken back."""
        state = self._state
        removals = find_removals(state.store, batch, self._factory.input_schema)
        rows = np.flatnonzero(removals.adds)
        if len(rows):
            added = batch.columns.take(pa.array(rows))
            codes = state.order.codes([added.column(c) for c in state.order.columns], len(rows))
            times = MIN_TIMESTAMP if batch.timestamps is None else batch.timestamps_numpy()[rows]
            state.add(added, codes, self.context.processing_time.now_ms(), **{EVENT_TIME: times})
        state.store.remove(removals.numbers)
        state.compact()

    # ---- the end

    def _advance_to(self, timestamp: int) -> None:
        if timestamp == MAX_TIMESTAMP:
            super()._advance_to(timestamp)

    def on_watermark(self, timestamp: int) -> None:
        """Everything has come: send the rows, some partitions at a time, and forget them."""
        state = self._state
        numbers = state.store.live()
        if timestamp != MAX_TIMESTAMP or not len(numbers):
            return
        keys = self._factory.keys
        slots = KeySlots.of(self._factory.input_schema, keys)
        located = slots.locate(state.store.take_columns(numbers, keys), len(numbers))
        nothing = np.zeros(0, np.int64)
        no_codes = [nothing] * state.order.width
        values = state.sort_values(numbers, state.store.take(nothing), nothing, no_codes)
        parts = [located.of_rows, *values]
        order = sorted_order(parts)
        owners, numbers = parts[0][order], numbers[order]
        ties = np.cumsum(differs_from_previous(parts, order), dtype=np.int64)
        timed = bool((state.store.counter(EVENT_TIME)[numbers] != MIN_TIMESTAMP).all())
        for start, stop in _whole_partitions(owners):
            self._send_all(numbers[start:stop], owners[start:stop], ties[start:stop], timed=timed)
        state.store.remove(numbers)

    def _send_all(self, numbers: Integers, owners: Integers, ties: Integers, *, timed: bool) -> None:
        here = np.ones(len(numbers), np.bool_)
        none = np.zeros(0, np.int64)
        first = self._state.first_codes(numbers)
        merged = Merged(numbers, owners, ties, first, None, None, ~here, here, none, none)
        found = self._results(merged, here, here, timed=timed)
        width, schema = len(self._factory.output_schema), self._factory.output_schema.arrow
        for start in range(0, len(numbers), _OUTPUT_ROWS):
            part = found.slice(start, _OUTPUT_ROWS)
            columns = pa.RecordBatch.from_arrays(part.columns[:width], schema=schema)
            self.output.emit(RecordBatch(columns, part.column(width) if timed else None))


def _whole_partitions(owners: Integers) -> list[tuple[int, int]]:
    """Ranges of rows that hold whole partitions, each of about `_PART_ROWS` unless a partition is larger.

    >>> _whole_partitions(np.array([0, 0, 1]))
    [(0, 3)]
    """
    begins = np.append(np.flatnonzero(np.append(True, owners[1:] != owners[:-1])), len(owners))
    ranges = []
    start = 0
    while start < len(owners):
        # the last beginning within the size, or at least the end of the first partition
        at = int(np.searchsorted(begins, start + _PART_ROWS, side="right")) - 1
        stop = int(begins[max(at, int(np.searchsorted(begins, start)) + 1)])
        ranges.append((start, stop))
        start = stop
    return ranges


def changelog_over_operator(factory: ChangelogOverFactory) -> ChangelogOverOperator | FinalOverOperator:
    """The operator that corrects its results, or the one that sends each once, at the end."""
    return FinalOverOperator(factory) if factory.at_end else ChangelogOverOperator(factory)
