"""Watermarks between the rows of a batch stay between the same rows, whatever is done with the batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import PassingWatermarks, RecordBatch, Watermark, concat_batches
from tests.examples import examples

Flat = list[tuple[str, int]]


@st.composite
def batches(draw: st.DrawFn, first: int = 0) -> RecordBatch:
    """Rows 0, 1, … with event times and ascending watermarks between them."""
    rows = draw(st.integers(0, 12))
    places = sorted(draw(st.lists(st.integers(0, rows), min_size=1, max_size=12)))
    steps = draw(st.lists(st.integers(1, 9), min_size=len(places), max_size=len(places)))
    watermarks = PassingWatermarks(np.array(places), first + np.cumsum(steps))
    numbers = pa.array(range(rows), pa.int64())
    columns = pa.RecordBatch.from_arrays([numbers], names=["n"])
    return RecordBatch(columns, numbers, watermarks=draw(st.sampled_from([watermarks, watermarks, None])))


def flat(batch: RecordBatch) -> Flat:
    """Rows and watermarks, one by one."""
    found: Flat = []
    for piece in batch.pieces():
        if isinstance(piece, Watermark):
            found.append(("watermark", piece.timestamp))
        else:
            assert piece.num_rows
            assert piece.watermarks is None
            found += [("row", n) for n in piece.columns.column(0).to_pylist()]
    return found


@examples(200)
@given(batches(), st.data())
def test_a_filter_leaves_all_watermarks(batch: RecordBatch, data: st.DataObject) -> None:
    mask = [data.draw(st.sampled_from([True, False, None])) for _ in range(batch.num_rows)]
    kept = batch.filter(pa.array(mask, pa.bool_()))
    assert flat(kept) == [e for e in flat(batch) if e[0] == "watermark" or mask[e[1]]]


@examples(200)
@given(batches(), st.lists(st.integers(0, 12)))
def test_slices_one_after_the_other_are_the_whole(batch: RecordBatch, cuts: list[int]) -> None:
    ends = [*sorted(c for c in cuts if c < batch.num_rows), batch.num_rows]
    found: Flat = []
    for start, end in zip([0, *ends], ends):  # noqa: B905  # the last start has no end
        found += flat(batch.slice(start, end - start)) if end > start or end == batch.num_rows else []
    assert found == flat(batch)


@examples(200)
@given(batches(), st.data())
def test_rows_that_are_taken_in_their_order_keep_their_watermarks(batch: RecordBatch, data: st.DataObject) -> None:
    taken = sorted(data.draw(st.lists(st.integers(0, batch.num_rows - 1)))) if batch.num_rows else []
    wanted: Flat = []
    for kind, value in flat(batch):
        wanted += [(kind, value)] * (taken.count(value) if kind == "row" else 1)
    assert flat(batch.take(pa.array(taken, pa.int64()))) == wanted


def test_watermarks_come_behind_rows_that_are_taken_in_another_order() -> None:
    columns = pa.RecordBatch.from_pydict({"n": [0, 1, 2]})
    batch = RecordBatch(columns, watermarks=PassingWatermarks(np.array([1]), np.array([5])))
    assert flat(batch.take(pa.array([2, 0]))) == [("row", 2), ("row", 0), ("watermark", 5)]


@examples(100)
@given(batches(), batches(first=1000))
def test_batches_that_are_put_together_are_one_after_the_other(first: RecordBatch, second: RecordBatch) -> None:
    assert flat(concat_batches([first, second])) == flat(first) + flat(second)


@examples(200)
@given(batches(), st.integers(1, 20), st.integers(-5, 5), st.data())
def test_what_matters_at_multiples_is_there(batch: RecordBatch, step: int, since: int, data: st.DataObject) -> None:
    """A timer of each row for the next multiple of its time fires at the same place and with the same watermark."""
    if batch.watermarks is None:
        return
    times = np.array([data.draw(st.integers(-20, 60)) for _ in range(batch.num_rows)], np.int64)

    def firings(watermarks: PassingWatermarks | None) -> list[tuple[int, int, int]]:
        timers: list[int] = []
        rows, reached = 0, since
        fired = []
        for kind, value in flat(batch.with_watermarks(watermarks)):
            if kind == "row":
                rows += 1
                timers.append(int(times[value]) // step * step + step)
            elif value > reached:
                reached = value
                fired += [(t, rows, reached) for t in sorted(timers) if t <= reached]
                timers = [t for t in timers if t > reached]
        return fired

    assert firings(batch.watermarks.passing_multiples(step, since, times)) == firings(batch.watermarks)
