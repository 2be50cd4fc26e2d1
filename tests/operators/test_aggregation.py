"""The partial-aggregate engine against plain Python: lift, merge and finish, over every way that groups can be formed."""

from __future__ import annotations

import datetime
import random
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL_DAY_TIME,
    STRING,
    TINYINT,
    DataType,
    decimal,
    row,
    time,
    timestamp,
)
from flowrun.errors import DataError, InternalError
from flowrun.operators.aggregation.bundle import concat_bundles
from flowrun.operators.aggregation.dense import Reduction
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.grouping import group_ids, reduce_by
from flowrun.operators.aggregation.layout import PartialLayout
from tests.examples import examples
from tests.operators.windows.kernels import bound, python_value

EXACT = Context(prec=80)


def run(
    schema: Schema,
    keys: tuple[int, ...],
    aggregates: tuple[BoundAggregate, ...],
    columns: dict[str, list[Any]],
    cut: int,
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Results by key of rows that are lifted in batches of `cut`, merged in a shuffled order, and finished."""
    engine = AggregationEngine(PartialLayout.of(schema, keys, aggregates))
    arrays = [pa.array(columns[f.name], f.type.arrow) for f in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    parts = [engine.lift(batch.slice(at, cut), at, reduce=(at // cut) % 2 == 0) for at in range(0, batch.num_rows, cut)]
    random.Random(1).shuffle(parts)
    half = engine.merge(concat_bundles(parts[: len(parts) // 2 + 1]))
    merged = engine.merge(concat_bundles([half, *parts[len(parts) // 2 + 1 :]]))
    out_keys = [k.to_pylist() for k in engine.decode_keys(merged.keys)]
    results = [r.to_pylist() for r in engine.finish(merged)]
    found = list(zip(*out_keys, strict=True)) if keys else [()]
    assert len(set(map(repr, found))) == len(found), "a group came twice"
    return dict(zip(found, zip(*results, strict=True), strict=True))


def expected(
    schema: Schema, keys: tuple[int, ...], aggregates: tuple[BoundAggregate, ...], columns: dict[str, list[Any]]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    rows = list(zip(*(columns[f.name] for f in schema), strict=True))
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for one in rows:
        groups.setdefault(tuple(one[k] for k in keys), []).append(one)
    return {key: tuple(python_value(a, held) for a in aggregates) for key, held in groups.items()}


VALUES: dict[DataType, list[Any]] = {
    TINYINT: [1, 2, -3],
    INT: [1, 2, -3],
    BIGINT: [1, 2**40, -3],
    FLOAT: [0.5, 2.0, -1.25],
    DOUBLE: [0.5, 2.0, -1.25],
    decimal(10, 2): [Decimal("1.10"), Decimal("-2.00"), Decimal("3.55")],
    decimal(30, 4): [Decimal("1.1000"), Decimal("-2.0000"), Decimal("99999999999999999999.1234")],
    STRING: ["x", "yy", ""],
    DATE: [datetime.date(1969, 5, 1), datetime.date(2024, 3, 1), datetime.date(1970, 1, 1)],
    time(3): [datetime.time(1, 2, 3), datetime.time(4, 5, 6), datetime.time(0, 0)],
    timestamp(3): [datetime.datetime(1960, 1, 1), datetime.datetime(2024, 3, 1), datetime.datetime(1970, 1, 1)],
    BOOLEAN: [True, False, True],
    INTERVAL_DAY_TIME: [datetime.timedelta(days=1), datetime.timedelta(0), datetime.timedelta(milliseconds=5)],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("key", [BIGINT, STRING, BOOLEAN, timestamp(3), decimal(10, 2), DOUBLE], ids=str)
def test_every_type_of_value_under_every_type_of_key(kind: DataType, key: DataType) -> None:
    schema = Schema.of(k=key, v=kind, f=BOOLEAN)
    functions = ["COUNT", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"]
    if kind.is_numeric:
        functions.append("SUM")
    aggregates = tuple(
        bound(f"{function}_{i}", function, 1, kind, filter=filter_, distinct=distinct)
        for i, (filter_, distinct) in enumerate([(None, False), (2, False), (None, True)])
        for function in functions
    )
    rng = random.Random(7)
    size = 60
    columns = {
        "k": [rng.choice([*VALUES[key], None]) for _ in range(size)],
        "v": [rng.choice([*VALUES[kind], None]) for _ in range(size)],
        "f": [rng.choice([True, False, None]) for _ in range(size)],
    }
    assert run(schema, (0,), aggregates, columns, 7) == expected(schema, (0,), aggregates, columns)


@pytest.mark.parametrize("spread", [1, 10**12], ids=["addressed", "hashed"])
@pytest.mark.parametrize("keys", [(0,), (0, 1), ()], ids=str)
def test_integer_keys_in_a_small_and_in_a_wide_range(keys: tuple[int, ...], spread: int) -> None:
    schema = Schema.of(a=BIGINT, b=INT, v=BIGINT)
    aggregates = (bound("n", "COUNT(*)"), bound("s", "SUM", 2), bound("m", "MIN", 2), bound("l", "LAST_VALUE", 2))
    rng = random.Random(3)
    columns = {
        "a": [rng.choice([None, *(spread * i for i in range(-5, 5))]) for _ in range(500)],
        "b": [rng.choice([None, 1, 2]) for _ in range(500)],
        "v": [rng.choice([None, rng.randint(-9, 9)]) for _ in range(500)],
    }
    assert run(schema, keys, aggregates, columns, 64) == expected(schema, keys, aggregates, columns)


@examples(50)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30),
    st.integers(1, 8),
)
def test_integer_sums_are_exact_or_an_error_but_never_depend_on_batches(rows: list[tuple[int, int]], cut: int) -> None:
    schema = Schema.of(k=BIGINT, v=BIGINT)
    aggregates = (bound("total", "SUM", 1),)
    columns = {"k": [k for k, _ in rows], "v": [v for _, v in rows]}
    exact = expected(schema, (0,), aggregates, columns)
    if all(-(2**63) <= total < 2**63 for (total,) in exact.values()):
        assert run(schema, (0,), aggregates, columns, cut) == exact
    else:
        with pytest.raises(DataError, match="SUM AS total: the sum does not fit BIGINT"):
            run(schema, (0,), aggregates, columns, cut)


@pytest.mark.parametrize("digits", [9, 18, 30, 37])
def test_decimal_sums_are_exact(digits: int) -> None:
    schema = Schema.of(k=BIGINT, v=decimal(digits, 3))
    aggregates = (bound("total", "SUM", 1, decimal(digits, 3)),)
    most = Decimal((0, (9,) * digits, -3))
    columns = {"k": [1, 1, 2, 2, 2], "v": [most, most, most, most.copy_negate(), None]}
    doubled = EXACT.add(most, most)
    for cut in (1, 5):
        assert run(schema, (0,), aggregates, columns, cut) == {(1,): (doubled,), (2,): (Decimal("0.000"),)}


def test_a_decimal_sum_of_more_than_38_digits_is_an_error() -> None:
    schema = Schema.of(k=BIGINT, v=decimal(38, 3))
    most = Decimal((0, (9,) * 38, -3))
    with pytest.raises(DataError, match=r"SUM AS total: the sum does not fit DECIMAL\(38, 3\)"):
        run(schema, (0,), (bound("total", "SUM", 1, decimal(38, 3)),), {"k": [1, 1], "v": [most, most]}, 2)


def test_distinct_values_may_be_rows_and_nan_is_one_value() -> None:
    kind = row(("x", DOUBLE))
    schema = Schema.of(k=BIGINT, v=kind, d=DOUBLE)
    aggregates = (bound("rows", "COUNT", 1, kind, distinct=True), bound("numbers", "COUNT", 2, DOUBLE, distinct=True))
    nan = float("nan")
    columns = {
        "k": [1, 1, 1, 1],
        "v": [{"x": nan}, {"x": nan}, {"x": -0.0}, {"x": 0.0}],
        "d": [nan, nan, 0.0, -0.0],
    }
    assert run(schema, (0,), aggregates, columns, 1) == {(1,): (2, 2)}


def test_equal_accumulators_are_computed_once() -> None:
    schema = Schema.of(k=BIGINT, v=BIGINT)
    layout = PartialLayout.of(schema, (0,), (bound("a", "AVG", 1), bound("s", "SUM", 1), bound("n", "COUNT", 1)))
    assert [p.partial for p in layout.partials] == ["sum", "count"]
    assert layout.transport_schema.names == ("k", "slice_end", "sum_v", "sum_v_carry", "count_v")


def test_a_key_named_like_an_internal_column_keeps_its_place() -> None:
    schema = Schema.of(slice_end=BIGINT, v=BIGINT)
    layout = PartialLayout.of(schema, (0,), (bound("s", "SUM", 1),))
    assert layout.transport_schema.names == ("slice_end_", "slice_end", "sum_v", "sum_v_carry")


def test_an_unknown_accumulator_is_reported() -> None:
    from dataclasses import replace

    wrong = bound("s", "SUM", 1)
    kernel = replace(wrong.kernel, accumulators=(replace(wrong.kernel.accumulators[0], partial="median"),))
    with pytest.raises(InternalError, match="accumulator sum = median"):
        PartialLayout.of(Schema.of(k=BIGINT, v=BIGINT), (0,), (replace(wrong, kernel=kernel),))


def test_no_rows_give_no_groups() -> None:
    keys, columns = reduce_by([pa.array([], pa.string())], 0, [Reduction("sum", pa.array([], pa.int64()))])
    assert len(keys[0]) == len(columns[0]) == 0


def test_the_greatest_integers_are_keys_like_others() -> None:
    values = pa.array([2**63 - 1, -(2**63), 2**63 - 1])
    ids, _ = group_ids([values], 3)
    assert ids[0] == ids[2] != ids[1]
    assert np.unique(ids).size == 2
