"""The join of each row with the rows that an outside table has for it now (FOR SYSTEM_TIME AS OF a processing time).

A batch asks once, for its distinct keys that no cache knows. Rows keep their event times, and their kinds: the change that an updating
input makes is passed on with each row that is found at that moment, as in Flink; where the table itself changes, a retraction may then
find other rows than the insertion did.

With concurrent lookups a batch waits for its answer while later ones are asked already. Everything stays in order: batches, and the
watermarks and idleness between them, leave in the order in which they came, and nothing is under way when a snapshot is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flowrun.api.functions import ColumnsKernel
from flowrun.api.lookup import FoundRows
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch, Watermark, WatermarkStatus
from flowrun.operators.aggregation.grouping import numbered_groups
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import evaluate
from flowrun.operators.joins.condition import MAX_PAIRS, PairCondition
from flowrun.operators.joins.factories import LookupJoinFactory
from flowrun.operators.joins.lookup_cache import CachedRows, LookupCache
from flowrun.operators.joins.lookup_calls import CONCURRENT_LOOKUPS, LookupCalls
from flowrun.operators.joins.lookup_options import CacheMode
from flowrun.operators.joins.unmatched import unmatched_counters
from flowrun.operators.keyed.integers import ranges

_MAX_WAITING = 2 * CONCURRENT_LOOKUPS
_ROW = pa.field("__row", pa.int8())  # keeps the number of found rows where no column of them is wanted


@dataclass(slots=True)
class _Question:
    """A batch and what is needed to answer it.

    Attributes:
        batch: the rows.
        local: for each row the number of its key among the distinct ones; −1: it has a NULL in it.
        cached: what the cache knew of the distinct keys.
        asked: those that it did not know.
        future: the answer about these, if it was asked for already.
    """

    batch: RecordBatch
    local: Integers
    cached: CachedRows
    asked: pa.RecordBatch
    future: Future[FoundRows] | None = None


class LookupJoinOperator(AbstractOperator):
    """Joins with an outside table; see the module."""

    def __init__(self, factory: LookupJoinFactory) -> None:
        self._factory = factory
        keys = factory.source.keys
        self._codec = KeyCodec.of([(f.name, f.type) for f in keys])
        self._schema = factory.output_schema.arrow
        self._found = pa.schema([_ROW, *factory.projection.schema.arrow])
        self._condition = PairCondition(factory.condition, factory.name, factory.errors)
        cached = factory.settings.cache is not CacheMode.NONE
        self._cache = LookupCache(keys, self._found, factory.settings) if cached else None
        self._waiting: deque[_Question | Watermark | WatermarkStatus] = deque()
        self._calls: LookupCalls | None = None
        self._keys_of: ColumnsKernel | None = None
        self._project: ColumnsKernel | None = None

    def open(self) -> None:
        """Compile expressions and connect."""
        factory, settings = self._factory, self._factory.settings
        self._keys_of, self._project = factory.keys.compile(), factory.projection.compile()
        self._condition.open(self.context, self.output)
        self._hits = self.context.metrics.counter("lookupCacheHits")
        self._misses = self.context.metrics.counter("lookupCacheMisses")
        self._unmatched, _ = unmatched_counters(self.context.metrics)
        self._calls = LookupCalls(
            factory.source,
            self.context,
            f"lookup in '{factory.table}'",
            settings.max_retries,
            concurrent=settings.concurrent,
        )
        self._calls.open()

    def close(self) -> None:
        """Disconnect."""
        self._waiting.clear()
        if self._calls is not None:
            self._calls.close()
            self._calls = None

    # ---- in order

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Ask for the batch's keys, and join it when the answer is there."""
        question = self._question(batch)
        if not self._factory.settings.concurrent:
            self._answer(question)
            return
        assert self._calls is not None
        if question.asked.num_rows:
            question.future = self._calls.submit(question.asked, self._wake)
        self._waiting.append(question)
        self._send_ready(_MAX_WAITING)

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        """Forward behind the batches that came before."""
        self._in_order(watermark)

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """Forward behind the batches that came before."""
        self._in_order(status)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Nothing may be under way when the barrier goes downstream."""
        self._send_ready(0)

    def end_input(self, input_index: int = 0) -> None:
        """Answer what is left."""
        self._send_ready(0)

    def _in_order(self, element: Watermark | WatermarkStatus) -> None:
        if not self._waiting:
            self._forward(element)
        else:
            self._waiting.append(element)
            self._send_ready(_MAX_WAITING)

    def _forward(self, element: Watermark | WatermarkStatus) -> None:
        if isinstance(element, Watermark):
            AbstractOperator.process_watermark(self, element)
        else:
            AbstractOperator.process_status(self, element)

    def _wake(self) -> None:
        """An answer is there; called in another thread."""
        self.context.execute(lambda: self._send_ready(_MAX_WAITING))

    def _send_ready(self, most: int) -> None:
        """Send what is ready at the front; wait for answers while more than `most` elements are queued."""
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, _Question):
                if len(self._waiting) <= most and first.future is not None and not first.future.done():
                    return
                self._answer(first)
            else:
                self._forward(first)
            self._waiting.popleft()

    # ---- rows

    def _question(self, batch: RecordBatch) -> _Question:
        assert self._keys_of is not None
        keys = evaluate(self._keys_of, batch.columns, f"keys of '{self._factory.name}'")
        local = np.full(batch.num_rows, -1, np.int64)
        usable = np.ones(batch.num_rows, np.bool_)
        for column in keys.columns:
            if column.null_count:
                usable &= column.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(usable)
        if len(rows) < batch.num_rows:
            keys = keys.take(pa.array(rows))
        groups, _, first = numbered_groups(self._codec.encode(keys.columns), len(rows))
        local[rows] = groups
        distinct = keys.take(first)
        if self._cache is None:
            nothing = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._found], schema=self._found)
            unknown = CachedRows(np.zeros(distinct.num_rows, np.bool_), np.zeros(0, np.int64), nothing)
            return _Question(batch, local, unknown, distinct)
        cached = self._cache.find(distinct, self.context.clock.now_ms())
        asked = distinct.take(pa.array(np.flatnonzero(~cached.known)))
        self._hits.inc(distinct.num_rows - asked.num_rows)
        self._misses.inc(asked.num_rows)
        return _Question(batch, local, cached, asked)

    def _answer(self, question: _Question) -> None:
        """Join a batch with what is found, and send it."""
        counts, rows = self._found_rows(question)
        known = question.cached.known
        per_key = np.zeros(len(known) + 1, np.int64)  # the last entry is for rows with a NULL key
        starts = np.zeros(len(known) + 1, np.int64)
        order = np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)])
        every = np.concatenate([question.cached.counts, counts])
        per_key[order], starts[order] = every, np.cumsum(every) - every
        held = question.cached.rows
        if held.num_rows and rows.num_rows:
            rows = pa.concat_batches([held, rows])
        elif held.num_rows:
            rows = held
        self._emit(question.batch, starts[question.local], per_key[question.local], rows)

    def _found_rows(self, question: _Question) -> tuple[Integers, pa.RecordBatch]:
        """(number of rows of each key that was asked for, these rows key by key)."""
        assert self._calls is not None
        assert self._project is not None
        asked = question.asked
        if not asked.num_rows:
            return np.zeros(0, np.int64), question.cached.rows.slice(0, 0)
        if question.future is None:
            found = self._calls.find(asked)
        else:
            found = self._calls.result(question.future, asked)
        counts = np.bincount(found.probe, minlength=asked.num_rows)
        projected = evaluate(self._project, found.rows, f"columns of '{self._factory.table}'")
        rows = pa.RecordBatch.from_arrays(
            [pa.array(np.zeros(len(found.probe), np.int8)), *projected.columns], schema=self._found
        )
        if self._cache is not None:
            self._cache.put(asked, counts, rows, self.context.clock.now_ms())
        return counts, rows

    def _emit(self, batch: RecordBatch, starts: Integers, counts: Integers, found: pa.RecordBatch) -> None:
        for start, stop in _row_chunks(counts):
            part = batch.slice(start, stop - start)
            lengths = counts[start:stop]
            probe = np.repeat(np.arange(stop - start), lengths)
            columns = found.take(pa.array(ranges(starts[start:stop], lengths))).columns[1:]
            left = part if (lengths == 1).all() else part.take(pa.array(probe))
            joined = left.with_columns(
                pa.RecordBatch.from_arrays([*left.columns.columns, *columns], schema=self._schema)
            )
            passed = self._condition.mask(joined.columns)
            if passed is not None:
                joined, probe = joined.filter(pa.array(passed)), probe[passed]
            matched = int(np.count_nonzero(np.bincount(probe, minlength=part.num_rows)))
            self._unmatched.inc(part.num_rows - matched)
            if self._factory.outer and len(lengths):
                joined = self._with_unmatched(part, joined, probe)
            self.output.emit(joined)

    def _with_unmatched(self, part: RecordBatch, joined: RecordBatch, probe: Integers) -> RecordBatch:
        """The joined rows and, in their places, those rows of `part` that found nothing."""
        missing = np.ones(part.num_rows, np.bool_)
        missing[probe] = False
        lost = np.flatnonzero(missing)
        if not len(lost):
            return joined
        owners = np.concatenate([probe, lost])
        order = np.argsort(owners, kind="stable")
        at = np.concatenate([np.arange(len(probe)), np.zeros(len(lost), np.int64)])[order]
        chosen = pa.array(at, mask=order >= len(probe))
        left = part.take(pa.array(owners[order]))
        wanted = joined.columns.columns[part.columns.num_columns :]
        right = [c.take(chosen) if len(c) else pa.nulls(len(order), c.type) for c in wanted]
        return left.with_columns(pa.RecordBatch.from_arrays([*left.columns.columns, *right], schema=self._schema))


def _row_chunks(counts: Integers) -> Iterator[tuple[int, int]]:
    """(start, stop) of stretches of rows that give about `MAX_PAIRS` rows each."""
    ends = np.cumsum(np.maximum(counts, 1))
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + MAX_PAIRS, side="right")))
        yield start, stop
        start = stop
