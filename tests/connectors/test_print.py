"""print: rows as people read changelogs."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from flowrun.api.sink import WriterContext
from flowrun.connectors.print import PrintSink
from flowrun.connectors.row_text import render_rows
from flowrun.core.clock import ManualClock
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.testing.metrics import RecordedMetrics
from flowrun.testing.processing_time import ManualProcessingTime


def test_every_kind_of_value_has_a_plain_text() -> None:
    columns = pa.record_batch(
        {
            "i": pa.array([1, None]),
            "s": pa.array(["Ünïcode ☂", None]),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            "t": pa.array([dt.datetime(2024, 3, 1, 10, 0, 0, 5000), None], pa.timestamp("ms", "UTC")),
            "a": pa.array([[1, None], None], pa.list_(pa.int64())),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "r": pa.array([{"x": True, "y": None}, None], pa.struct([("x", pa.bool_()), ("y", pa.string())])),
            "b": pa.array([b"\x01\xff", None]),
        }
    )
    assert render_rows(RecordBatch(columns)).to_pylist() == [
        "+I[1, Ünïcode ☂, 1.50, 2024-03-01 10:00:00.005, [1, NULL], {k=1}, {x: true, y: NULL}, x'01ff']",
        "+I[NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL]",
    ]


def test_numbers_are_spelled_as_in_flink() -> None:
    columns = pa.record_batch(
        {
            "f": pa.array([1.0, float("nan"), float("-inf")]),
            "d": pa.array([Decimal("1e-10"), Decimal("-2"), None], pa.decimal128(38, 10)),
            "r": pa.array([{"x": float("inf"), "y": Decimal("1e-10")}] * 3),
        }
    )
    assert render_rows(RecordBatch(columns)).to_pylist() == [
        "+I[1.0, 0.0000000001, {x: Infinity, y: 0.0000000001}]",
        "+I[NaN, -2.0000000000, {x: Infinity, y: 0.0000000001}]",
        "+I[-Infinity, NULL, {x: Infinity, y: 0.0000000001}]",
    ]


def test_fields_without_names_of_their_own_are_in_parentheses() -> None:
    rows = pa.array([{"EXPR$0": 1, "EXPR$1": {"EXPR$0": "a", "x": None}}, None])
    assert render_rows(RecordBatch(pa.record_batch({"r": rows}))).to_pylist() == [
        "+I[(1, {EXPR$0: a, x: NULL})]",
        "+I[NULL]",
    ]


def test_change_kinds_show() -> None:
    rows = RecordBatch(pa.record_batch({"v": pa.array([1, 2, 3, 4])}), None, pa.array([0, 1, 2, 3], pa.int8()))
    assert render_rows(rows).to_pylist() == ["+I[1]", "-U[2]", "+U[3]", "-D[4]"]


@pytest.mark.parametrize(
    ("identifier", "parallelism", "prefix"),
    [("", 1, ""), ("x", 1, "x> "), ("", 2, "2> "), ("x", 2, "x:2> ")],
)
def test_the_prefix_says_which_sink_and_subtask_when_that_matters(
    identifier: str, parallelism: int, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock()
    context = WriterContext(
        1, parallelism, "a", clock, ManualProcessingTime(clock), RecordedMetrics(), lambda ms: clock.advance(int(ms))
    )
    writer = PrintSink(Schema.of(v=BIGINT), identifier, False).create_writer(context)
    writer.write(RecordBatch(pa.record_batch({"v": pa.array([7, 8])})))
    assert capsys.readouterr().out == f"{prefix}+I[7]\n{prefix}+I[8]\n"


def test_with_a_primary_key_an_update_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink(Schema.of(id=BIGINT, n=BIGINT), "", False, primary_key=("id",))
    clock = ManualClock()
    context = WriterContext(0, 1, "a", clock, ManualProcessingTime(clock), RecordedMetrics(), lambda ms: None)
    columns = pa.record_batch({"id": [1, 1, 1, 2, 3, 3], "n": [1, 1, 2, 2, 5, 5]})
    kinds = pa.array([0, 1, 2, 3, 1, 3], pa.int8())
    sink.create_writer(context).write(RecordBatch(columns, row_kinds=kinds))
    assert capsys.readouterr().out.splitlines() == ["+I[1, 1]", "+U[1, 2]", "-D[2, 2]", "-U[3, 5]", "-D[3, 5]"]


def test_a_moved_key_is_an_old_row_taken_back_and_a_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink(Schema.of(id=BIGINT), "", False, primary_key=("id",))
    clock = ManualClock()
    context = WriterContext(0, 1, "a", clock, ManualProcessingTime(clock), RecordedMetrics(), lambda ms: None)
    sink.create_writer(context).write(
        RecordBatch(pa.record_batch({"id": [1, 2]}), row_kinds=pa.array([1, 2], pa.int8()))
    )
    assert capsys.readouterr().out.splitlines() == ["-U[1]", "+U[2]"]
