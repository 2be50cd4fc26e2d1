"""The last rows of an exchange: kept while somebody looks, and not otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_fakes import MemoryStorage, Numbers, Table, pipeline
from runtime_fakes import until
from test_recovery import TOTAL, running

from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.errors import StateError
from flowrun.runtime.row_samples import EVERY_MS, LONGEST_MS, LONGEST_ROW, ROWS, RowSample, row_texts


def batch(*values: int, kinds: list[RowKind] | None = None) -> RecordBatch:
    rows = pa.record_batch({"k": pa.array(values, pa.int64())})
    return RecordBatch(rows, row_kinds=None if kinds is None else pa.array(kinds, pa.int8()))


def test_rows_are_kept_only_while_somebody_looks() -> None:
    clock = ManualClock()
    sample = RowSample(clock)
    assert not sample.is_on
    sample.begin(10_000)
    assert sample.is_on
    sample.look(batch(*range(100)))
    assert sample.rows() == tuple(f'{{"k":{k}}}' for k in range(100 - ROWS, 100))
    sample.look(batch(7))
    assert len(sample.rows()) == ROWS, "not every batch is looked at"
    clock.advance(EVERY_MS)
    sample.look(batch(7))
    assert sample.rows() == ('{"k":7}',)
    clock.advance(10_000)
    assert sample.rows() == (), "also if no more rows come"
    sample.look(batch(8))
    assert not sample.is_on
    sample.begin(10_000)
    assert sample.rows() == ()


def test_nobody_can_ask_for_ever() -> None:
    clock = ManualClock()
    sample = RowSample(clock)
    sample.begin(10**9)
    clock.advance(LONGEST_MS)
    sample.look(batch(1))
    assert not sample.is_on


def test_rows_of_changes_say_which() -> None:
    sample = RowSample(ManualClock())
    sample.begin(1_000)
    sample.look(batch(1, 1, kinds=[RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]))
    assert sample.rows() == ('{"$change":"-U","k":1}', '{"$change":"+U","k":1}')


def test_every_type_has_a_text_and_long_rows_are_cut() -> None:
    columns = {
        "bytes": pa.array([b"\x00\xff" * 100]),
        "time": pa.array([1], pa.timestamp("ms")),
        "decimal": pa.array([1], pa.decimal128(10, 2)),
        "nan": pa.array([float("nan")]),
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "row": pa.array([{"x": [None, "ü"]}]),
    }
    [text] = row_texts(pa.record_batch(columns))
    assert text.startswith('{"bytes":"0x00ff00ff')
    assert '"decimal":"1.00","nan":null,"map":[["a",1]],"row":{"x":[null,"ü"]}}' in text
    [long] = row_texts(pa.record_batch({"text": ["x" * 10_000]}))
    assert len(long) == LONGEST_ROW


def test_a_running_job_shows_the_rows_of_one_exchange() -> None:
    source, table = Numbers(TOTAL, released=20), Table()
    with running(pipeline(source, table), MemoryStorage()) as job_master:
        first, second = job_master.details().exchanges
        with pytest.raises(StateError, match="the job has no exchange nowhere"):
            job_master.sample_rows("nowhere", 1_000)
        job_master.sample_rows(first.exchange_id, 60_000)
        until(lambda: job_master.status().vertices[2].records_in == 80)
        source.release(TOTAL)
        until(lambda: any(s.rows for s in job_master.details().vertices[0].subtasks))
        details = job_master.details()
        shown = {exchange for v in details.vertices for s in v.subtasks for exchange in s.rows}
        assert shown == {first.exchange_id}
        assert second.exchange_id not in shown
        job_master.sample_rows(first.exchange_id, 0)
        until(lambda: not any(s.rows for s in job_master.details().vertices[0].subtasks))
