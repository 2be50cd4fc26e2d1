"""Operators for one range of keys after the other: each begins afresh and sees the end of time, and only rows go on."""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.operator import ChainingStrategy
from flowrun.core.elements import MAX_WATERMARK, RecordBatch
from flowrun.operators.base import AbstractOperator
from flowrun.operators.by_keys import OperatorByKeys, final_rows
from flowrun.testing.harness import OperatorHarness


class Telling(AbstractOperator):
    """Sends how many rows it has seen with each batch, and at the end of time."""

    def __init__(self, told: list[str]) -> None:
        self.inputs = 2
        self._told = told
        self._rows = 0

    def open(self) -> None:
        self._told.append("open")

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._rows += batch.num_rows
        self._told.append(f"{input_index}: {self._rows}")

    def on_watermark(self, timestamp: int) -> None:
        self._told.append("end of time")
        self.output.emit(RecordBatch(pa.record_batch({"n": [self._rows]})))

    def end_input(self, input_index: int = 0) -> None:
        self._told.append(f"end of {input_index}")

    def finish(self) -> None:
        self._told.append("finish")

    def close(self) -> None:
        self._told.append("close")


class Recipe:
    """See `OperatorFactory`."""

    chaining = ChainingStrategy.ALWAYS

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def create(self) -> Telling:
        return Telling(self._told)


def rows(*numbers: int) -> RecordBatch:
    return RecordBatch(pa.record_batch({"n": list(numbers)}))


def test_each_range_of_keys_has_an_operator_of_its_own() -> None:
    told: list[str] = []
    operator = OperatorByKeys(Recipe(told), 2)
    harness = OperatorHarness(operator, inputs=2)
    assert told == [], "none before there are rows"
    operator.process_batch(rows(1, 2), 0)
    operator.process_batch(rows(3), 1)
    operator.end_keys()
    assert told == ["open", "0: 2", "1: 3", "end of 0", "end of time", "end of 1", "finish", "close"]
    operator.end_keys()
    told.clear()
    operator.process_batch(rows(4), 1)
    assert operator.current is not None
    operator.end_keys()
    assert told[1] == "1: 1", "nothing is known of the keys before"
    assert harness.rows() == [(3,), (1,)]
    assert harness.watermarks() == []
    for index in (0, 1):
        operator.process_watermark(MAX_WATERMARK, index)
    assert harness.watermarks() == [MAX_WATERMARK.timestamp]
    told.clear()
    operator.process_batch(rows(4), 1)
    operator.close()
    assert told[-1] == "close", "what is open is closed"


def test_changes_amount_to_the_last_row_of_each_key() -> None:
    columns = pa.record_batch({"k": ["a", None, "a", "b", "a", None, "b"], "n": [1, 1, 1, 5, 2, 1, 5]})
    kinds = pa.array([0, 0, 1, 0, 2, 3, 1], pa.int8())
    found = final_rows(RecordBatch(columns, None, kinds), (0,))
    assert found.columns.to_pylist() == [{"k": "a", "n": 2}]
    assert found.row_kinds is None
