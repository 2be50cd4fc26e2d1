"""Users' Python aggregates in the updating group aggregation."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.aggregate import BoundAggregate, UserAggregate
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, STRING, DataType, row
from flowrun.errors import DataError, StateError
from flowrun.operators.aggregation.user_aggregates import UserFolding, user_kernel
from flowrun.operators.updating.factories import GroupAggregateFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored, taken
from tests.operators.updating.group_oracle import FoldedChanges, output_schema

PAIR, TEXT = row(("f0", BIGINT), ("f1", BIGINT)), row(("f0", STRING))
SCHEMA = Schema.of(k=STRING, pair=PAIR, text=TEXT, one=row(("f0", BIGINT)), none=BOOLEAN)


def user(name: str, arguments: tuple[DataType, ...], result: DataType, **options: bool) -> UserAggregate:
    return UserAggregate(name, f"tests.operators.updating.users:{name}", (), arguments, result, **options)


WEIGHTED = BoundAggregate("w", user_kernel(user("WeightedSum", (BIGINT, BIGINT), BIGINT, retractable=True)), 1)
JOINED = BoundAggregate("j", user_kernel(user("Concatenation", (STRING,), STRING)), 2)
SUMMED = BoundAggregate("s", user_kernel(user("ArrowSum", (BIGINT,), BIGINT, retractable=True, vectorised=True)), 3)
DISTINCT = BoundAggregate("d", SUMMED.kernel, 3, distinct=True)
COUNTED = BoundAggregate("c", user_kernel(user("Rows", (), BIGINT)), 4)
CALLS = (WEIGHTED, JOINED, SUMMED, DISTINCT, COUNTED)

VALUES = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3), st.sampled_from(["x", "y", None]))
Value = tuple[str, int, int, str | None]


def rows_of(values: list[Value]) -> pa.RecordBatch:
    rows = [
        {"k": k, "pair": {"f0": a, "f1": b}, "text": {"f0": t}, "one": {"f0": a}, "none": True} for k, a, b, t in values
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA.arrow)


def expected(held: list[Value], texts: dict[str, list[str]]) -> dict[str, int]:
    results: dict[str, int] = {}
    for key in {k for k, *_ in held}:
        own = [v for v in held if v[0] == key]
        weighted = sum(a * b for _, a, b, _ in own)
        result = (
            key,
            weighted,
            "".join(texts[key]),
            sum(a for _, a, *_ in own),
            sum({a for _, a, *_ in own}),
            len(own),
        )
        results[repr(result)] = 1
    return results


@pytest.mark.exhaustive
@given(st.data(), st.lists(VALUES, min_size=1, max_size=20), st.booleans())
@examples(60)
def test_rows_come_and_go_with_and_without_a_retract_method(
    data: st.DataObject, values: list[Value], retracting: bool
) -> None:
    factory = GroupAggregateFactory((0,), CALLS, SCHEMA, output_schema(SCHEMA, (0,), CALLS), retracting=retracting)
    harness = OperatorHarness(factory)
    held: list[Value] = []
    texts: dict[str, list[str]] = {"a": [], "b": []}
    folded = FoldedChanges()
    for value in values:
        changes = [(value, 0)]
        held.append(value)
        texts[value[0]].append(value[3] or "-")
        if retracting and data.draw(st.booleans()):
            gone = held[data.draw(st.integers(0, len(held) - 1))]
            held.remove(gone)
            texts[gone[0]].remove(gone[3] or "-")  # of equal values the one that came first
            changes.append((gone, 3))
        harness.push(_batch(changes))
        if data.draw(st.integers(0, 4)) == 0:
            folded.take(harness.elements)
            harness = OperatorHarness.restore(factory, [stored(taken(harness))])
    folded.take(harness.elements)
    assert folded.rows == expected(held, texts)


def _batch(changes: list[tuple[Value, int]]) -> RecordBatch:
    return RecordBatch(rows_of([v for v, _ in changes]), row_kinds=pa.array([k for _, k in changes], pa.int8()))


def failing() -> OperatorHarness:
    calls = (BoundAggregate("f", user_kernel(user("Failing", (STRING,), STRING)), 2),)
    return OperatorHarness(GroupAggregateFactory((0,), calls, SCHEMA, output_schema(SCHEMA, (0,), calls)))


def test_an_aggregate_that_fails_is_named_with_its_line() -> None:
    with pytest.raises(
        DataError, match=r"aggregate Failing .*accumulate failed: ValueError: no such value at .*users.py:\d+"
    ):
        failing().push(rows_of([("a", 1, 1, "fail")]))


def test_an_aggregate_that_fails_names_what_it_was_given() -> None:
    with pytest.raises(DataError, match=r"the row has \{value: 'fail'\}"):
        failing().push(rows_of([("a", 1, 1, "fail")]))


@pytest.mark.parametrize("name", ["ByNumPy", "ByPandas", "ByPolars"])
def test_columns_of_each_library_have_the_rows_of_a_group(name: str) -> None:
    folding = UserFolding(user(name, (BIGINT,), BIGINT, vectorised=True))
    values = pa.StructArray.from_arrays([pa.array([1, None, 10, None, 2, 20], pa.int64())], names=["f0"])
    kept = folding.folded([None, None, None], np.array([0, 0, 1, 2, 0, 1]), values, None)
    assert folding.results(kept).to_pylist() == [302, 3002, 0]


def test_a_value_of_another_type_says_which_was_declared() -> None:
    with pytest.raises(DataError, match="get_value gave what is no STRING"):
        failing().push(rows_of([("a", 1, 1, "x")]))


def test_accumulators_that_an_older_flowrun_pickled_are_one_clear_error() -> None:
    folding = UserFolding(user("Rows", (), BIGINT))
    with pytest.raises(StateError, match=r"aggregate Rows .*cannot be read: it was pickled"):
        folding.folded([pickle.dumps(5)], np.zeros(1, np.int64), pa.array([True]), None)


def test_an_accumulator_that_cannot_be_stored_says_what_can() -> None:
    folding = UserFolding(user("Holder", (), BIGINT))
    with pytest.raises(StateError, match=r"a value of type .*users.Held cannot be stored") as raised:
        folding.folded([None], np.zeros(1, np.int64), pa.array([True]), None)
    assert "plain values" in (raised.value.hint or "")
