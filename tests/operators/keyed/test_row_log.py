"""Rows of a log are found again by position, and are in few pieces however they came: taking some does not cost more in a long log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowrun.operators.keyed.row_log import RowLog


def filled(rows: int, step: int) -> RowLog:
    log = RowLog()
    for start in range(0, rows, step):
        values = np.arange(start, min(start + step, rows))
        assert log.append(pa.record_batch({"a": values, "b": -values})) == start
    return log


@pytest.mark.parametrize("step", [200, 500, 1_000, 1_024, 2_000, 3_000, 20_000])
def test_a_long_log_has_few_pieces(step: int) -> None:
    log = filled(400_000, step)
    assert len(log) == 400_000
    assert log.chunks < 40
    positions = np.random.default_rng(step).integers(0, len(log), 1_000)
    taken = log.take(positions)
    assert taken["a"].to_pylist() == positions.tolist()
    assert taken["b"].to_pylist() == (-positions).tolist()


def test_rows_are_copied_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    concat = pa.concat_batches

    def counting(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        nonlocal copied
        copied += sum(b.num_rows for b in batches)
        return concat(batches)

    monkeypatch.setattr(pa, "concat_batches", counting)
    filled(400_000, 1_000)
    assert copied < 6 * 400_000
