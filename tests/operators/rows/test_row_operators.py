"""Operators on each row by itself: what they send for a batch, with event times and kinds of the rows."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch, RowKind
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, INT, STRING, DataType, array, map_of, row, timestamp, timestamp_ltz
from flowrun.errors import DataError
from flowrun.operators.rows.factories import (
    AssignTimeFactory,
    Collection,
    ExpandFactory,
    TableFunctionFactory,
    UnnestFactory,
    WatermarkColumnFactory,
    WindowFunctionFactory,
)
from flowrun.operators.timed.assigners import CumulativeSlices, SlidingSlices, TumblingSlices
from flowrun.plan.compiled import Projection
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.plan.plans import projections, scan

MINUTE = 60_000
FUNCTIONS = "tests.operators.rows.functions"


def at(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def stamps(batch: RecordBatch) -> list[int]:
    """The event times of a batch."""
    assert batch.timestamps is not None
    times: list[int] = batch.timestamps.to_pylist()
    return times


def kinds(batch: RecordBatch) -> list[int]:
    """The row kinds of a batch."""
    assert batch.row_kinds is not None
    found: list[int] = batch.row_kinds.to_pylist()
    return found


def sent(harness: OperatorHarness) -> list[RecordBatch]:
    """The batches that an operator has sent."""
    return [e for e in harness.elements if isinstance(e, RecordBatch)]


def projection(schema: Schema, *select: str) -> Projection:
    entries = projections(scan(schema), *select)
    return Projection(tuple(e for _, e in entries), Schema.from_pairs((n, e.type) for n, e in entries))


# -- assigned times and expanded rows ------------------------------------------------------------------------------------------


def test_a_column_becomes_the_event_time() -> None:
    schema = Schema.of(id=INT, t=timestamp(6))
    with OperatorHarness(pickle.loads(pickle.dumps(AssignTimeFactory(1))), schema=schema) as harness:
        harness.push({"id": [1, 2], "t": [at(5), at(-1)]}, timestamps=[0, 0], row_kinds=[0, 3])
        harness.watermark(7)
        (batch,) = sent(harness)
    assert stamps(batch) == [5, -1]
    assert kinds(batch) == [0, 3]
    assert harness.watermarks() == [7]


def test_event_time_is_never_null() -> None:
    with OperatorHarness(AssignTimeFactory(0), schema=Schema.of(t=timestamp(3))) as harness:
        with pytest.raises(DataError, match=r"'t' must not be NULL, but it is in row 1 \{t: NULL\}") as error:
            harness.push({"t": [at(0), None]})
        assert error.value.hint == "drop such rows before: WHERE t IS NOT NULL"


def test_the_watermark_of_each_row_never_goes_back() -> None:
    recipe, schema = WatermarkColumnFactory(Schema.of(id=BIGINT, mark=BIGINT)), Schema.of(id=BIGINT)
    subtasks = [OperatorHarness(recipe, schema=schema, subtask=i, parallelism=2) for i in range(2)]
    for harness, watermark in zip(subtasks, (10, 20), strict=True):
        harness.push({"id": [1]})
        harness.watermark(watermark)
        harness.push({"id": [2]})
        assert harness.rows() == [(1, MIN_TIMESTAMP), (2, watermark)]
    snapshots = [h.snapshot() for h in subtasks]
    restored = OperatorHarness.restore(pickle.loads(pickle.dumps(recipe)), snapshots, schema=schema, parallelism=3)
    restored.push({"id": [3]})
    for watermark in (15, 30, MAX_TIMESTAMP):
        restored.watermark(watermark)
        restored.push({"id": [4]})
    assert restored.rows() == [(3, 20), (4, 20), (4, 30), (4, 30)]
    again = OperatorHarness.restore(recipe, [*snapshots, restored.snapshot()], schema=schema)
    again.push({"id": [5]})
    assert again.rows() == [(5, 30)]


def test_rows_are_expanded_set_by_set() -> None:
    """The halves of an update stay side by side."""
    schema = Schema.of(a=INT, b=STRING)
    sets = tuple(projection(schema, *s) for s in (["a", "b", "0 AS g"], ["a", "CAST(NULL AS STRING) AS b", "1 AS g"]))
    with OperatorHarness(ExpandFactory(sets), schema=schema) as harness:
        harness.push(
            {"a": [1, 2], "b": ["x", "y"]}, timestamps=[5, 6], row_kinds=[RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
        )
        (batch,) = sent(harness)
        assert harness.rows() == [(1, "x", 0), (2, "y", 0), (1, None, 1), (2, None, 1)]
    assert stamps(batch) == [5, 6, 5, 6]
    assert kinds(batch) == [1, 2, 1, 2]


# -- collections ---------------------------------------------------------------------------------------------------------------

ELEMENT = row(("x", INT), ("y", STRING))


def unnested(
    type: DataType,
    values: Sequence[object],
    added: Schema,
    *,
    outer: bool = False,
    ordinality: bool = False,
    kind: Collection = Collection.ARRAY,
) -> list[tuple[object, ...]]:
    """What unnesting a column gives, by row number, in batches of any cut."""
    schema = Schema.of(i=INT, c=type)
    more = Schema.of(ORDINALITY=INT).fields if ordinality else ()
    output = Schema((*schema.fields, *added.fields, *more))
    factory = UnnestFactory(1, kind, output, outer, ordinality)
    with OperatorHarness(factory, schema=schema) as harness:
        whole = pa.record_batch(
            [pa.array(range(len(values)), pa.int32()), pa.array(values, type.arrow)], schema=schema.arrow
        )
        for start, size in ((0, 1), (1, 2), (3, len(values))):
            harness.push(whole.slice(start, size))
        return [(r[0], *r[2:]) for r in harness.rows()]


def test_arrays_give_their_elements() -> None:
    values = [["a", None], None, [], ["b"], ["c", "d"]]
    added = Schema.of(e=STRING)
    assert unnested(array(STRING), values, added) == [(0, "a"), (0, None), (3, "b"), (4, "c"), (4, "d")]
    assert unnested(array(STRING), values, added, outer=True, ordinality=True) == [
        (0, "a", 1), (0, None, 2), (1, None, None), (2, None, None), (3, "b", 1), (4, "c", 1), (4, "d", 2),
    ]  # fmt: skip


def test_rows_give_their_fields_unless_they_are_null() -> None:
    values = [[{"x": 1, "y": "a"}, None], [{"x": None, "y": "b"}], None, []]
    added = Schema.of(x=INT, y=STRING)
    assert unnested(array(ELEMENT), values, added) == [(0, 1, "a"), (1, None, "b")]
    assert unnested(array(ELEMENT), values, added, outer=True)[2:] == [(2, None, None), (3, None, None)]


def test_maps_give_keys_and_values() -> None:
    values = [[("k", 1), ("l", None)], None, [], [("m", 2)]]
    added = Schema.of(k=STRING, v=INT)
    got = unnested(map_of(STRING, INT), values, added, kind=Collection.MAP, ordinality=True)
    assert got == [(0, "k", 1, 1), (0, "l", None, 2), (3, "m", 2, 1)]


def test_multisets_repeat_their_elements() -> None:
    values = [[("k", 2), ("l", 1)], [("n", 0)], None, [("m", 3)]]
    added = Schema.of(e=STRING)
    got = unnested(map_of(STRING, INT), values, added, kind=Collection.MULTISET, outer=True)
    assert got == [(0, "k"), (0, "k"), (0, "l"), (1, None), (2, None), (3, "m"), (3, "m"), (3, "m")]


@given(st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4), max_size=9), st.booleans())
@examples(60)
def test_unnesting_is_a_loop_over_rows(values: list[list[int | None] | None], outer: bool) -> None:
    expected: list[tuple[object, ...]] = []
    for i, value in enumerate(values):
        expected += [(i, e, n) for n, e in enumerate(value or (), 1)] or ([(i, None, None)] if outer else [])
    assert unnested(array(INT), list(values), Schema.of(e=INT), outer=outer, ordinality=True) == expected


def test_many_elements_leave_in_several_batches() -> None:
    schema = Schema.of(c=array(BIGINT))
    factory = UnnestFactory(0, Collection.ARRAY, Schema.of(c=array(BIGINT), e=BIGINT), keeps_collection=False)
    with OperatorHarness(factory, schema=schema) as harness:
        harness.push({"c": [list(range(40_000))] * 8}, timestamps=list(range(8)), row_kinds=[0, 1] * 4)
        sizes = [b.num_rows for b in sent(harness)]
        marks = [k for b in sent(harness) for k in kinds(b)]
    assert sizes == [120_000, 120_000, 80_000]
    assert marks == [k for k in [0, 1] * 4 for _ in range(40_000)]


# -- table functions -----------------------------------------------------------------------------------------------------------


def called(
    name: str, argument: DataType, values: Sequence[object], columns: Schema, outer: bool = False
) -> list[tuple[object, ...]]:
    schema = Schema.of(i=INT, given=argument)
    output = Schema((*schema.fields, *columns.fields))
    factory = TableFunctionFactory(f"{FUNCTIONS}:{name}", projection(schema, "given"), columns, output, outer)
    with OperatorHarness(pickle.loads(pickle.dumps(factory)), schema=schema) as harness:
        harness.push({"i": list(range(len(values))), "given": values}, timestamps=list(range(len(values))))
        times = [t for b in sent(harness) for t in stamps(b)]
        rows = harness.rows()
    assert times == [r[0] for r in rows]
    return [(r[0], *r[2:]) for r in rows]


def test_functions_of_rows_give_any_number_of_rows() -> None:
    columns = Schema.of(word=STRING, size=INT)
    values = ["to be", None, "", "or"]
    assert called("words", STRING, values, columns) == [(0, "to", 2), (0, "be", 2), (3, "or", 2)]
    assert called("words", STRING, values, columns, outer=True) == [
        (0, "to", 2), (0, "be", 2), (1, None, None), (2, None, None), (3, "or", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["numbers", "repeated"])
@pytest.mark.parametrize("outer", [False, True])
def test_vectorised_functions_give_the_same(name: str, outer: bool) -> None:
    expected = [(0, 0), (0, 1), *([(1, None)] if outer else []), (2, 0)]
    assert called(name, INT, [2, 0, 1], Schema.of(n=BIGINT), outer) == expected


@pytest.mark.parametrize("name", ["by_numpy", "by_pandas", "by_polars"])
@pytest.mark.parametrize("outer", [False, True])
def test_columns_of_each_library_give_the_same(name: str, outer: bool) -> None:
    missing = [(1, None), (3, None)] if outer else []
    expected = sorted([(0, 0), (0, 1), (2, 0), *missing], key=str)
    assert sorted(called(name, INT, [2, None, 1, 0], Schema.of(n=BIGINT), outer), key=str) == expected


def test_rows_are_records_by_the_names_of_the_columns() -> None:
    columns = Schema.of(given0=STRING, size=INT)  # `given` is taken
    expected = [(0, "to", 2), (0, "be", 2), (0, "or", 2), (0, "not", 3)]
    assert called("named_words", STRING, ["to be or not"], columns) == expected


def test_classes_have_an_instance() -> None:
    assert called("Doubler", INT, [7], Schema.of(n=BIGINT)) == [(0, 7), (0, 7)]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("raise", r"raised ValueError: no at .*functions\.py:\d+; the row is \{i: 0, given: 'raise'\}"),
        ("number", "gave a int, expected rows"),
        ("short", r"gave the row \(1,\), expected 2 values: a, b"),
        ("text", "column 'a' is INT, got 'x' of type str"),
    ],
)
def test_what_does_not_fit_names_function_and_row(kind: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        called("wrong", STRING, [kind], Schema.of(a=INT, b=INT))
    assert error.value.row == 0
    assert f"{FUNCTIONS}:wrong" in str(error.value)


# -- windows -------------------------------------------------------------------------------------------------------------------


def windows(
    assigner: object, times: list[int], time: int | None = 1, type: DataType | None = None
) -> list[tuple[object, ...]]:
    schema = Schema.of(id=INT, t=type or timestamp(3))
    output = Schema((*schema.fields, *Schema.of(s=timestamp(3), e=timestamp(3), w=schema.types[1]).fields))
    factory = WindowFunctionFactory(assigner, time, output)  # type: ignore[arg-type]
    with OperatorHarness(pickle.loads(pickle.dumps(factory)), schema=schema) as harness:
        harness.advance_processing_time(90_000)
        column = (
            pa.array(times, pa.timestamp("ms"))
            .cast(pa.timestamp(schema.types[1].arrow.unit))
            .view(schema.types[1].arrow)
        )
        harness.push(
            pa.record_batch([pa.array(range(len(times)), pa.int32()), column], schema=schema.arrow), timestamps=times
        )
        whole = pa.Table.from_batches([b.columns for b in sent(harness)], schema=output.arrow)
        times_sent = [t for b in sent(harness) for t in stamps(b)]
    assert times_sent == [times[i] for i in whole["id"].to_pylist()], "rows keep their event times"
    ms = [c.cast(pa.timestamp("ms", c.type.tz)).cast(pa.int64()).to_pylist() for c in whole.columns[2:]]
    return list(zip(whole["id"].to_pylist(), *ms, strict=True))


def test_rows_have_each_of_their_windows() -> None:
    assert windows(TumblingSlices(10), [0, 9, -1]) == [(0, 0, 10, 9), (1, 0, 10, 9), (2, -10, 0, -1)]
    assert windows(SlidingSlices(10, 5), [7]) == [(0, 5, 15, 14), (0, 0, 10, 9)]
    assert windows(SlidingSlices(5, 10), [3, 7]) == [(0, 0, 5, 4)], "no window holds the second row"
    assert windows(CumulativeSlices(30, 10), [12]) == [(0, 0, 30, 29), (0, 0, 20, 19)]


@pytest.mark.parametrize("type", [timestamp(0), timestamp(6), timestamp(9), timestamp_ltz(3), timestamp_ltz(6)])
def test_window_time_has_the_type_of_the_time(type: DataType) -> None:
    assert windows(TumblingSlices(10), [0, 11], type=type) == [(0, 0, 10, 9), (1, 10, 20, 19)]


def test_in_processing_time_the_clock_says_the_window() -> None:
    assert windows(TumblingSlices(MINUTE), [5, 7], time=None) == [
        (0, MINUTE, 2 * MINUTE, 2 * MINUTE - 1),
        (1, MINUTE, 2 * MINUTE, 2 * MINUTE - 1),
    ]


def test_a_row_without_time_has_no_window() -> None:
    factory = WindowFunctionFactory(
        TumblingSlices(10), 0, Schema.of(t=timestamp(3), s=timestamp(3), e=timestamp(3), w=timestamp(3)), "tumble"
    )
    harness = OperatorHarness(factory, schema=Schema.of(t=timestamp(3)))
    with harness, pytest.raises(DataError, match="'tumble': the time attribute 't' must not be NULL"):
        harness.push({"t": [None]})
