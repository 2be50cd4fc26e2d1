"""Record batches keep rows, times and change kinds together."""

import numpy as np
import pyarrow as pa

from flowrun.core.elements import RecordBatch, concat_batches, timestamps_from_column


def batch(values: list[int], times: list[int] | None = None, kinds: list[int] | None = None) -> RecordBatch:
    return RecordBatch(
        pa.record_batch({"v": pa.array(values, pa.int64())}),
        None if times is None else pa.array(times, pa.int64()),
        None if kinds is None else pa.array(kinds, pa.int8()),
    )


def test_slice_take_and_filter_keep_times_and_kinds_beside_their_rows() -> None:
    whole = batch([1, 2, 3, 4], [10, 20, 30, 40], [0, 1, 2, 3])
    for part, rows in [
        (whole.slice(1, 2), [1, 2]),
        (whole.take(pa.array([3, 0])), [3, 0]),
        (whole.filter(pa.array([True, None, False, True])), [0, 3]),
    ]:
        assert part.columns.column("v").to_pylist() == [[1, 2, 3, 4][r] for r in rows]
        assert part.timestamps.to_pylist() == [[10, 20, 30, 40][r] for r in rows]
        assert part.row_kinds.to_pylist() == rows


def test_concat_treats_batches_without_kinds_as_inserts() -> None:
    joined = concat_batches([batch([1], [5]), batch([2], [6], [3])])
    assert joined.row_kinds.to_pylist() == [0, 3]
    assert joined.timestamps.to_pylist() == [5, 6]
    assert concat_batches([batch([1]), batch([2])]).row_kinds is None


def test_bytes_count_the_slice_and_not_its_parent() -> None:
    large = batch(list(range(10_000)), list(range(10_000)))
    assert large.nbytes == 160_000
    assert large.slice(0, 10).nbytes == 160


def test_event_times_are_floored_milliseconds_and_keep_nulls() -> None:
    micros = pa.array([-1, 1_999, None], pa.int64()).view(pa.timestamp("us"))
    assert timestamps_from_column(micros).to_pylist() == [-1, 1, None]
    millis = pa.array([5, None], pa.timestamp("ms", "UTC"))
    assert timestamps_from_column(millis).to_pylist() == [5, None]
    nanos = pa.array(np.array([1_500_000], np.int64)).view(pa.timestamp("ns"))
    assert timestamps_from_column(nanos).to_pylist() == [1]
