"""Filter, projection and split."""

import pickle

import pyarrow.compute as pc
import pytest

from flowrun.api.operator import OutputTag
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN
from flowrun.errors import DataError
from flowrun.operators.factories import CalcFactory, SplitFactory
from flowrun.testing import OperatorHarness
from tests.operators.operator_recipes import Computed, Greater, Positive

SCHEMA = Schema.of(a=BIGINT, b=BIGINT)
SUM = Schema.of(total=BIGINT)


def add(batch):
    return {"total": pc.add(batch.column("a"), batch.column("b"))}


def divide(batch):
    return {"total": pc.divide(batch.column("a"), batch.column("b"))}


def refuse(batch):
    if 3 in batch.column("a").to_pylist():
        raise DataError("refused")
    return {"total": batch.column("a")}


def test_filter_then_project_keeps_times_and_kinds():
    harness = OperatorHarness(CalcFactory(Greater("a", 1), Computed(SUM, add)), schema=SCHEMA)
    harness.push({"a": [1, 2, None, 3], "b": [10, 20, 30, 40]}, [100, 200, 300, 400], row_kinds=[0, 1, 2, 3])
    harness.watermark(400)
    assert harness.changes() == [("-U", (22,)), ("-D", (43,))]
    assert harness.timestamps() == [200, 400]
    assert harness.watermarks() == [400]


def test_nothing_is_sent_when_nothing_is_left():
    harness = OperatorHarness(CalcFactory(Greater("a", 9), Computed(SUM, add)), schema=SCHEMA)
    harness.push({"a": [1, None], "b": [1, 2]})
    assert harness.elements == []


def test_rows_that_all_pass_are_not_copied():
    harness = OperatorHarness(CalcFactory(Greater("a", 0)), schema=SCHEMA)
    batch = harness.batch({"a": [1, 2], "b": [3, 4]})
    harness.push(batch)
    assert harness.elements[0] is batch


def test_without_condition_and_projection_rows_pass():
    harness = OperatorHarness(CalcFactory(), schema=SCHEMA)
    harness.push({"a": [1], "b": [2]})
    assert harness.rows() == [(1, 2)]


def test_an_error_names_the_row_of_the_input_batch():
    harness = OperatorHarness(CalcFactory(Greater("a", 1), Computed(SUM, divide), "ratio"), schema=SCHEMA)
    with pytest.raises(DataError) as caught:
        harness.push({"a": [0, 2, 1, 4, 5], "b": [0, 1, 0, 0, 0]})
    assert caught.value.row == 3
    assert "projection of 'ratio': divide by zero; the row is {a: 4, b: 0}" in str(caught.value)


def test_an_error_without_a_row_is_traced_to_one():
    harness = OperatorHarness(CalcFactory(None, Computed(SUM, refuse)), schema=SCHEMA)
    with pytest.raises(DataError, match="refused") as caught:
        harness.push({"a": [1, 2, 3, 4], "b": [0] * 4})
    assert caught.value.row == 2


def test_a_failing_filter_names_its_row():
    class Parsed(Greater):
        def compile(self):
            return lambda batch: pc.greater(pc.divide(100, batch.column("a")), 0)

    harness = OperatorHarness(CalcFactory(Parsed("a", 0)), schema=SCHEMA)
    with pytest.raises(DataError, match="filter of 'calc'") as caught:
        harness.push({"a": [1, 2, 0, 0], "b": [0] * 4})
    assert caught.value.row == 2


FLAGS = Schema.of(id=BIGINT, left=BOOLEAN, right=BOOLEAN)
LEFT, RIGHT = OutputTag("left", FLAGS), OutputTag("right", FLAGS)


def test_a_row_goes_to_every_branch_that_wants_it_and_the_rest_to_main():
    harness = OperatorHarness(SplitFactory(((LEFT, Positive("left")), (RIGHT, Positive("right")))), schema=FLAGS)
    harness.push(
        {
            "id": [1, 2, 3, 4, 5],
            "left": [True, False, True, None, None],
            "right": [False, True, True, False, True],
        },
        [10, 20, 30, 40, 50],
    )
    harness.watermark(7)
    assert [r[0] for r in harness.side_rows("left")] == [1, 3]
    assert [r[0] for r in harness.side_rows(RIGHT)] == [2, 3, 5]
    assert harness.rows() == [(4, None, False)]
    assert harness.timestamps() == [40]


def test_a_whole_batch_may_go_one_way():
    harness = OperatorHarness(SplitFactory(((LEFT, Positive("left")),)), schema=FLAGS)
    all_left = {"id": [1, 2], "left": [True, True], "right": [None, None]}
    harness.push(all_left)
    assert len(harness.side_rows("left")) == 2
    assert harness.rows() == []
    harness.push({**all_left, "left": [False, None]})
    assert len(harness.rows()) == 2


def test_a_failing_branch_is_named_and_nothing_is_sent():
    class Broken(Positive):
        def compile(self):
            return lambda batch: pc.equal(pc.divide(1, batch.column("id")), 0)

    harness = OperatorHarness(SplitFactory(((LEFT, Positive("left")), (RIGHT, Broken("x"))), "routes"), schema=FLAGS)
    with pytest.raises(DataError, match="branch 'right' of 'routes'") as caught:
        harness.push({"id": [1, 0], "left": [True, True], "right": [None, None]})
    assert caught.value.row == 1
    assert harness.elements == []


def test_factories_pickle():
    factory = CalcFactory(Greater("a", 1), Computed(SUM, add))
    assert pickle.loads(pickle.dumps(factory)) == factory
