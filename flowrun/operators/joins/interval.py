"""The join of two streams within an interval of time: left time + lower ≤ right time ≤ left time + upper, and equal keys.

Semantics are those of Apache Flink's interval join (`TimeIntervalJoin`). Each side remembers its rows; a row is joined when it comes
with what the other side remembers, and remembered itself while time (the smaller watermark of both inputs, or the clock) has not
passed the last row that it could match. Rows are forgotten when no row that is not late can match them, and rows of an outer join that
matched nothing come out then, with NULLs for the other side. A late row still joins with what is remembered; when it comes too late to
be remembered it comes out (or not) at once. A row with NULL in a key or as its time matches nothing.

Rows come out with the later of both times as their event time, outer ones with their own. The watermark is held back by the longest
time for which a row may wait, so that no row is late for it by either side's time (`getMaxOutputDelay` in Flink).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch, Watermark
from flowrun.core.semantics import TimeDomain
from flowrun.operators.base import AbstractOperator
from flowrun.operators.first_timer import FirstTimer
from flowrun.operators.joins.condition import MAX_PAIRS, PairCondition, pair_chunks, paired
from flowrun.operators.joins.factories import LEFT, RIGHT, TABLES, IntervalJoinFactory
from flowrun.operators.joins.interval_side import IntervalSide, TimedRows
from flowrun.operators.joins.outer import padded_left, padded_right
from flowrun.operators.joins.unmatched import unmatched_counters
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.hash_lists import Pairs

_TIMER_SLACK_MS = 1_000


class IntervalJoinOperator(AbstractOperator):
    """Joins by key and time; see the module."""

    inputs = 2

    def __init__(self, factory: IntervalJoinFactory) -> None:
        self._factory = factory
        self._processing = factory.domain is TimeDomain.PROCESSING
        self._possible = factory.lower_ms <= factory.upper_ms
        self._condition = PairCondition(factory.condition, factory.name, factory.errors)
        self._schema = factory.output_schema.arrow
        self._timer: FirstTimer | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        factory = self._factory
        stays = (factory.upper_ms, -factory.lower_ms)  # how long after its own time a row of either side can be matched
        self._sides = tuple(
            IntervalSide(
                factory.schemas[i],
                factory.keys[i],
                factory.times[i],
                context.max_parallelism,
                stays_ms=stays[i],
                outer=factory.outer.value[i],
            )
            for i in (LEFT, RIGHT)
        )

        self._unmatched = unmatched_counters(context.metrics, on_arrival=True)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back both sides' rows."""
        if restored is not None:
            for side, name in zip(self._sides, TABLES, strict=True):
                side.restore(restored.keyed.get(name))

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """What changed of both sides."""
        tables = {name: side.snapshot() for side, name in zip(self._sides, TABLES, strict=True)}
        return OperatorSnapshot(segmented=tables)

    def open(self) -> None:
        """Compile the condition; wait for restored rows in processing time."""
        self._condition.open(self.context, self.output)
        if self._processing:
            self._timer = FirstTimer(self.context.processing_time, self._next_cleanup, self._forget)
            self._timer.rearm()

    def close(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.close()

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Join rows with what the other side remembers, then remember them."""
        own, other = self._sides[input_index], self._sides[1 - input_index]
        now = self.context.processing_time.now_ms() if self._processing else self.current_watermark
        if self._processing:
            self._forget(now)
        rows = own.timed(batch, now if self._processing else None)
        matched = np.zeros(batch.num_rows, np.bool_)
        if self._possible:
            low, high = self._bounds(rows.times, input_index)
            for pairs in other.find(rows, low, high):
                self._emit_pairs(rows, pairs, input_index, matched)
            stays = rows.matchable & (rows.times > _minus(now, own.stays_ms))
            own.remember(rows, stays, matched)
        else:
            stays = np.zeros(batch.num_rows, np.bool_)
        self._unmatched[input_index].inc(batch.num_rows - int(np.count_nonzero(matched)))
        if own.outer:
            self._emit_unmatched(rows, np.flatnonzero(~matched & ~stays), input_index, batch.timestamps)
        if self._timer is not None:
            self._timer.rearm()

    def _bounds(self, times: Integers, index: int) -> tuple[Integers, Integers]:
        """Times of the other side between which a row's matches are, inclusive."""
        lower, upper = self._factory.lower_ms, self._factory.upper_ms
        return (times + lower, times + upper) if index == LEFT else (times - upper, times - lower)

    def _emit_pairs(self, rows: TimedRows, pairs: Pairs, index: int, matched: Bools) -> None:
        other = self._sides[1 - index]
        for part in pair_chunks(len(pairs), MAX_PAIRS):
            probe, numbers = pairs.probe[part], pairs.numbers[part]
            mine, theirs = rows.columns.take(pa.array(probe)), other.rows(numbers)
            left, right = (mine, theirs) if index == LEFT else (theirs, mine)
            keys = zip(*self._factory.keys, strict=True)
            equal = [(left.column(a), right.column(b)) for a, b in keys]
            joined = paired(left, right, self._schema)
            same = rows_equal([a for a, _ in equal], [b for _, b in equal], len(probe))
            if not same.all():
                kept = np.flatnonzero(same)
                joined, probe, numbers = joined.take(pa.array(kept)), probe[kept], numbers[kept]
            passed = self._condition.mask(joined)
            if passed is not None:
                joined, probe, numbers = joined.filter(pa.array(passed)), probe[passed], numbers[passed]
            if not len(probe):
                continue
            matched[probe] = True
            other.mark(numbers)
            times = None
            if not self._processing:
                times = pa.array(np.maximum(rows.times[probe], other.times_of(numbers)))
            self.output.emit(RecordBatch(joined, times))

    def _emit_unmatched(self, rows: TimedRows, unmatched: Integers, index: int, stamps: pa.Array | None) -> None:
        """Outer rows that nothing will match: too late to wait, or with a NULL key or time."""
        if not len(unmatched):
            return
        chosen = pa.array(unmatched)
        times = None
        if not self._processing:
            instants = rows.times[unmatched]
            untimed = ~rows.timed[unmatched]
            if untimed.any():
                known = stamps.to_numpy()[unmatched] if stamps is not None else max(0, self.current_watermark)
                instants = np.where(untimed, known, instants)
            times = pa.array(instants)
        self._emit_padded(rows.columns.take(chosen), times, index)

    def _emit_padded(self, rows: pa.RecordBatch, times: pa.Array | None, index: int) -> None:
        pad = padded_right if index == LEFT else padded_left
        self.output.emit(RecordBatch(pad(rows, self._schema), times))

    # ---- time

    def _advance_to(self, timestamp: int) -> None:
        if not self._processing:
            self._forget(timestamp)
        delay = self._factory.output_delay_ms
        held = timestamp if timestamp == MAX_TIMESTAMP else _minus(timestamp, delay)
        if held > MIN_TIMESTAMP:
            self.output.emit_watermark(Watermark(held))

    def finish(self) -> None:
        """In processing time, bounded input leaves rows that nothing can match any more."""
        if self._processing and self.current_watermark == MAX_TIMESTAMP:
            self._forget(MAX_TIMESTAMP)

    def _forget(self, time: int) -> None:
        """Forget what time has left behind; outer rows without match come out."""
        for index, side in enumerate(self._sides):
            bound = MAX_TIMESTAMP if time == MAX_TIMESTAMP else _minus(time, side.stays_ms + 1)
            unmatched = side.forget(bound)
            for part in pair_chunks(len(unmatched), MAX_PAIRS):
                numbers = unmatched[part]
                times = None if self._processing else pa.array(side.times_of(numbers))
                self._emit_padded(side.rows(numbers), times, index)
            side.compact()

    def _next_cleanup(self) -> int | None:
        """When the clock should be looked at again: rows are forgotten some at a time."""
        slack = min(_TIMER_SLACK_MS, max(0, self._factory.upper_ms - self._factory.lower_ms) // 2)
        due = [first + side.stays_ms + 1 + slack for side in self._sides if (first := side.first()) is not None]
        return min(due, default=None)


def _minus(time: int, ms: int) -> int:
    """`time` − `ms`, within the range of times."""
    return max(MIN_TIMESTAMP, min(MAX_TIMESTAMP, time - ms))
