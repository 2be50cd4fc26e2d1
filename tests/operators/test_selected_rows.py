"""Rows that a filter has chosen are gathered once, by who needs them gathered, and are the same rows for everybody."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.clock import ManualClock
from flowrun.core.elements import PassingWatermarks, RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.selected_rows import SelectedRows, positions_of
from flowrun.core.types import BIGINT, STRING
from flowrun.datastream.functions import SelectColumns
from flowrun.operators.factories import CalcFactory
from flowrun.runtime.metrics import ScopedMetrics
from flowrun.runtime.network.key_sample import KeySample
from flowrun.runtime.network.selectors import APART_BYTES, KeyGroupSelector
from flowrun.runtime.network.writer import RecordWriter
from flowrun.runtime.row_samples import RowSample
from flowrun.runtime.task.outputs import ChainTarget, CopyingChainTarget, OperatorOutput
from flowrun.runtime.watchdog.board import private_activity
from flowrun.testing import OperatorHarness
from flowrun.testing.output import CollectedOutput, rows_of
from tests.operators.operator_recipes import Computed, Greater

SCHEMA = Schema.of(a=BIGINT, name=STRING)
NAMES = SelectColumns((1,), Schema.of(name=STRING))


class SelectingOutput(CollectedOutput):
    """Takes selections, too; keeps them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.selections: list[SelectedRows] = []

    def emit_selected(self, selected: SelectedRows) -> None:
        self.selections.append(selected)


def calc(factory: CalcFactory) -> tuple[OperatorHarness, SelectingOutput]:
    harness = OperatorHarness(factory, schema=SCHEMA, open=False)
    harness.output = output = SelectingOutput()
    harness.start()
    return harness, output


def test_a_filter_leaves_the_rows_where_they_are() -> None:
    harness, output = calc(CalcFactory(Greater("a", 1), NAMES))
    harness.push({"a": [1, 2, None, 3], "name": ["p", "q", "r", "s"]}, [1, 2, 3, 4], row_kinds=[0, 1, 2, 3])
    (selected,) = output.selections
    assert selected.positions.to_pylist() == [1, 3]
    assert selected.batch.num_rows == 4
    rows = selected.rows()
    assert rows_of(rows.columns) == [("q",), ("s",)]
    assert rows.timestamps is not None
    assert rows.row_kinds is not None
    assert (rows.timestamps.to_pylist(), rows.row_kinds.to_pylist()) == ([2, 4], [1, 3])
    assert output.elements == []


@pytest.mark.parametrize("a", [[5, 6], [None, 0]], ids=["all rows pass", "no row passes"])
def test_there_is_no_selection_where_nothing_is_chosen(a: list[int | None]) -> None:
    harness, output = calc(CalcFactory(Greater("a", 1), NAMES))
    harness.push({"a": a, "name": ["p", "q"]})
    assert output.selections == []
    assert harness.rows() == ([("p",), ("q",)] if a[0] else [])


def test_what_may_fail_is_computed_over_chosen_rows_alone() -> None:
    def divide(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        return {"name": pc.divide(6, batch.column("a")).cast(pa.string())}

    harness, output = calc(CalcFactory(Greater("a", 0), Computed(Schema.of(name=STRING), divide)))
    harness.push({"a": [0, 2], "name": ["p", "q"]})
    assert output.selections == []
    assert harness.rows() == [("3",)]


def test_watermarks_between_rows_keep_their_places() -> None:
    harness, output = calc(CalcFactory(Greater("a", 1), NAMES))
    between = PassingWatermarks(np.array([2]), np.array([7]))
    rows = pa.record_batch({"a": [1, 2, 3], "name": ["p", "q", "r"]}, schema=SCHEMA.arrow)
    harness.push(RecordBatch(rows, pa.array([1, 2, 3], pa.int64())).with_watermarks(between))
    assert output.selections == []
    (sent,) = output.elements
    assert isinstance(sent, RecordBatch)
    assert sent.watermarks is not None
    assert sent.watermarks.rows.tolist() == [1]


@pytest.mark.parametrize(
    ("second", "given"),
    [(CalcFactory(None, NAMES), True), (CalcFactory(Greater("a", 2), NAMES), False), (CalcFactory(), True)],
    ids=["columns", "condition", "nothing"],
)
def test_the_next_operator_takes_a_selection_if_it_only_moves_columns(second: CalcFactory, given: bool) -> None:
    harness, output = calc(second)
    rows = RecordBatch(pa.record_batch({"a": [1, 2, 3], "name": ["p", "q", "r"]}, schema=SCHEMA.arrow))
    harness.operator.process_selected(SelectedRows(rows, pa.array([0, 2])))
    if given:
        (selected,) = output.selections
        assert selected.positions.to_pylist() == [0, 2]
        assert [row[-1] for row in rows_of(selected.rows().columns)] == ["p", "r"]
    else:  # its own selection, of the rows that it was given
        (own,) = output.selections
        assert (own.batch.num_rows, rows_of(own.rows().columns)) == (2, [("r",)])


class Kept:
    """An operator that keeps batches, and takes no selections."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self.batches.append(batch)


@pytest.mark.parametrize("kind", [ChainTarget, CopyingChainTarget])
def test_targets_that_need_the_rows_gathered_get_them_and_all_is_counted(kind: type[ChainTarget]) -> None:
    operators = [Kept(), Kept()]
    inputs = [ScopedMetrics(("in", str(i))) for i in range(2)]
    end = OperatorOutput([], {}, ScopedMetrics(("end",)), ManualClock())
    targets = [
        kind(operator, 1, 0, end, metrics, lambda *_: None, private_activity())  # type: ignore[arg-type]
        for operator, metrics in zip(operators, inputs, strict=True)
    ]
    own = ScopedMetrics(("own",))
    output = OperatorOutput(targets, {}, own, ManualClock())
    rows = RecordBatch(pa.record_batch({"a": [1, 2, 3]}))
    output.emit_selected(SelectedRows(rows, pa.array([0, 2])))
    assert [[rows_of(b.columns) for b in o.batches] for o in operators] == [[[(1,), (3,)]]] * 2
    assert own.counter("numRecordsOut").count == 2
    assert [metrics.counter("numRecordsIn").count for metrics in inputs] == [2, 2]
    (one,), (other,) = (o.batches for o in operators)
    assert (one is other) == (kind is ChainTarget), "with object reuse off nobody shares rows"


@given(st.data(), st.integers(1, 9), st.booleans())
def test_selected_rows_are_dealt_as_gathered_ones_are(data: st.DataObject, channels: int, large: bool) -> None:
    keys = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 20)), min_size=1, max_size=40))
    mask = data.draw(st.lists(st.sampled_from([True, False, None]), min_size=len(keys), max_size=len(keys)))
    mask[data.draw(st.integers(0, len(keys) - 1))] = True
    offset = data.draw(st.integers(0, len(keys) - 1)) if any(mask[-1:]) else 0
    text = "x" * (2 * APART_BYTES // len(keys) if large else 3)
    columns = pa.record_batch(
        {"k": pa.array(keys, pa.int64()), "t": [f"{i}{text}" for i in range(len(keys))], "r": [{"f": i} for i in keys]}
    )
    whole = RecordBatch(columns, pa.array(range(len(keys)), pa.int64()), pa.array([0] * len(keys), pa.int8()))
    selected = SelectedRows(whole.slice(offset), positions_of(pa.array(mask[offset:], pa.bool_())))
    selector = KeyGroupSelector((0,), channels, 128)
    expected = _plain(selector.deal(selected.batch.filter(pa.array(mask[offset:], pa.bool_()))))
    assert _plain(selector.deal_selected(selected)) == expected


def _plain(dealt: Sequence[tuple[int, RecordBatch]]) -> list[object]:
    return [
        (channel, rows.columns.to_pylist(), rows.timestamps.to_pylist(), rows.row_kinds.to_pylist())  # type: ignore[union-attr]
        for channel, rows in dealt
    ]


class Written:
    """Stands for a result partition."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, dealt: Sequence[tuple[int, RecordBatch]]) -> None:
        self.rows += sum(batch.num_rows for _, batch in dealt)


def test_who_looks_at_an_exchange_sees_the_last_rows_that_were_sent() -> None:
    sample, partition, sent = RowSample(ManualClock()), Written(), ScopedMetrics(("own",)).counter("numRecordsOut")
    writer = RecordWriter(KeyGroupSelector((0,), 2, 128), partition, sent, None, sample)  # type: ignore[arg-type]
    sample.begin(1000)
    rows = RecordBatch(pa.record_batch({"k": list(range(40))}))
    writer.emit_selected(SelectedRows(rows, pa.array(range(0, 40, 2), pa.int64())))
    assert [orjson.loads(text)["k"] for text in sample.rows()] == list(range(20, 40, 2))
    assert (partition.rows, sent.count) == (20, 20)


def test_keys_are_sampled_of_rows_that_are_sent() -> None:
    sample = KeySample((0,), ManualClock())
    rows = pa.record_batch({"k": ["left out"] * 50 + ["sent"] * 50})
    sample.look(rows, pa.array(range(50, 100), pa.int64()))
    assert dict(sample.heaviest()) == {"k = 'sent'": 1.0}
