"""Updated results for late rows within the allowed lateness: one per late row and fired window, in order of the rows.

Apache Flink's `EventTimeTrigger` fires at once for a row of a window that the watermark has passed. The same results are computed
here without going row by row: every (late row, window) pair is a group that holds what the window held before the batch and the
batch's late rows up to that one, and all pairs of a block are merged together. Late rows are few; blocks bound the work when not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.record import record
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.dense import Slots
from flowrun.operators.aggregation.engine import SEQ, AggregationEngine
from flowrun.operators.aggregation.grouping import group_ids
from flowrun.operators.timed.assigners import AlignedSlices, Times

_BLOCK_ROWS = 256
_SLICE = "slice"
_EVENT = "event"


@record
class _Event:
    """One result that is due: `key` is a group number, `arrival` the arrival number of the late row."""

    key: int
    arrival: int
    window_end: int


class _Members:
    """One table of partial results (slice, keys, …), searchable by key, slice and arrival."""

    def __init__(self, table: pa.RecordBatch, keys: Slots, arrivals: Slots) -> None:
        self.keys = keys
        self._table = table
        self._slices: Slots = table.column(0).to_numpy()
        self._arrivals = arrivals
        self._by_key = np.argsort(keys, kind="stable")
        self._sorted = keys[self._by_key]

    def gather(self, events: Sequence[_Event], assigner: AlignedSlices) -> pa.RecordBatch:
        """The rows that each event sees; the slice column is replaced by the event's number."""
        chosen = [self._positions(e, assigner.window_start(e.window_end)) for e in events]
        numbers = np.repeat(np.arange(len(events), dtype=np.int64), [len(c) for c in chosen])
        rows = self._table.take(pa.array(np.concatenate(chosen)))
        return rows.set_column(0, _EVENT, pa.array(numbers))

    def _positions(self, event: _Event, window_start: int) -> Slots:
        first, last = np.searchsorted(self._sorted, [event.key, event.key + 1])
        rows = self._by_key[first:last]
        slices = self._slices[rows]
        seen = (slices > window_start) & (slices <= event.window_end) & (self._arrivals[rows] <= event.arrival)
        found: Slots = rows[seen]
        return found


def late_updates(
    engine: AggregationEngine,
    assigner: AlignedSlices,
    stored: Sequence[tuple[int, Bundle]],
    rows: pa.RecordBatch,
    slice_ends: Times,
    sequence: int,
    fired: range,
) -> Iterator[tuple[Bundle, Times]]:
    """(merged bundle, window end of each of its rows) per block, in the order in which the results are due.

    The bundle's first group column numbers the results; the keys follow.

    Args:
        engine: computes.
        assigner: maps slices to windows.
        stored: (slice end, partial results) of the slices before the batch; not changed.
        rows: the late rows, in order.
        slice_ends: slice of each late row.
        sequence: arrival number of the first late row.
        fired: ends of windows that had fired and still accept rows lie in this range.
    """
    history = _keys_of_interest(engine, stored, rows, slice_ends, sequence)
    for start in range(0, rows.num_rows, _BLOCK_ROWS):
        block_ends = slice_ends[start : start + _BLOCK_ROWS]
        block = engine.lift(
            rows.slice(start, _BLOCK_ROWS), sequence + start, leading=[(_SLICE, pa.array(block_ends))], reduce=False
        )
        pool = concat_bundles([history, block])
        before = np.full(history.main.num_rows, -1, np.int64)
        arrivals = sequence + start + np.arange(block.main.num_rows, dtype=np.int64)
        main, sides = _members(pool, np.concatenate([before, arrivals]))
        keys = main.keys[history.main.num_rows :]
        events = [
            _Event(int(keys[row]), int(arrivals[row]), end)
            for row, slice_end in enumerate(block_ends.tolist())
            for end in reversed(assigner.window_ends(slice_end))  # Flink assigns the newest window first
            if end in fired
        ]
        if events:
            seen = Bundle(pool.groups, main.gather(events, assigner), tuple(s.gather(events, assigner) for s in sides))
            merged = engine.merge(seen).ordered_by_leading()
            numbers = merged.main.column(0).to_numpy()
            yield merged, np.array([e.window_end for e in events], np.int64)[numbers]
        history = engine.merge(pool)


def _members(pool: Bundle, main_arrivals: Slots) -> tuple[_Members, list[_Members]]:
    tables = [pool.main, *pool.sides]
    key_columns = [pa.concat_arrays([t.column(i) for t in tables]) for i in range(1, pool.groups)]
    ids, _ = group_ids(key_columns, sum(t.num_rows for t in tables))
    stops = np.cumsum([t.num_rows for t in tables]).tolist()
    sides = [
        _Members(table, ids[stop - table.num_rows : stop], table.column(SEQ).to_numpy())
        for table, stop in zip(pool.sides, stops[1:], strict=True)
    ]
    return _Members(pool.main, ids[: stops[0]], main_arrivals), sides


def _keys_of_interest(
    engine: AggregationEngine,
    stored: Sequence[tuple[int, Bundle]],
    rows: pa.RecordBatch,
    slice_ends: Times,
    sequence: int,
) -> Bundle:
    """What is stored under the keys of `rows`, with the slice as a group column."""
    probe = engine.lift(rows, sequence, leading=[(_SLICE, pa.array(slice_ends))], reduce=False)
    parts = [_slice_of(probe, 0)]
    wanted = probe.keys[1:]
    for slice_end, part in stored:
        main = part.main.filter(pa.array(_is_among(wanted, part.keys)))
        sides = tuple(s.filter(pa.array(_is_among(wanted, s.columns[: part.groups]))) for s in part.sides)
        parts.append(Bundle(part.groups, main, sides).with_leading(_SLICE, slice_end))
    return concat_bundles(parts)


def _slice_of(bundle: Bundle, rows: int) -> Bundle:
    return Bundle(bundle.groups, bundle.main.slice(0, rows), tuple(s.slice(0, rows) for s in bundle.sides))


def _is_among(wanted: Sequence[pa.Array], keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    count = len(wanted[0])
    ids, total = group_ids([pa.concat_arrays([w, k]) for w, k in zip(wanted, keys, strict=True)], count + len(keys[0]))
    known = np.zeros(total, np.bool_)
    known[ids[:count]] = True
    found: npt.NDArray[np.bool_] = known[ids[count:]]
    return found
