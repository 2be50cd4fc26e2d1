from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT, DOUBLE
from flowrun.errors import DataError, StateError
from flowrun.operators.windows.counts import count_window
from flowrun.operators.windows.counts.factories import CountWindowFactory
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.stored import stored
from tests.operators.windows.general_streams import emitted, push_cut, rescaled, unbounded_schema
from tests.operators.windows.kernels import bound, python_value
from tests.operators.windows.streams import EVERYTHING, INPUT, ROWS, plain

FEW = examples(60)
KEYS = ((0,), (1,), (0, 1), ())
SIZES = ((1, 1), (2, 2), (5, 5), (4, 2), (6, 4), (3, 1), (2, 5), (5, 3))
TIMED = st.lists(st.tuples(ROWS, st.integers(-20, 50)), max_size=60)


def factory(keys: Sequence[int], size: int, slide: int, **options: Any) -> CountWindowFactory:
    aggregates = options.pop("aggregates", EVERYTHING)
    return CountWindowFactory(
        tuple(keys), tuple(aggregates), size, slide, INPUT, unbounded_schema(keys, aggregates), **options
    )


def row_by_row(
    rows: Sequence[Any], keys: Sequence[int], size: int, slide: int, *, accumulating: bool = False
) -> list[Any]:
    """Flink's global window with CountTrigger(slide) and CountEvictor(size), over Python lists."""
    held: dict[Any, list[Any]] = {}
    counts: dict[Any, int] = {}
    results = []
    for row, time in rows:
        key = tuple(row[k] for k in keys)
        content = held.setdefault(key, [])
        content.append((row, time))
        counts[key] = counts.get(key, 0) + 1
        if counts[key] % slide == 0:
            if not accumulating:
                del content[:-size]
            values = [python_value(a, [r for r, _ in content]) for a in EVERYTHING]
            newest = None if content[0][1] is None else max(t for _, t in content)
            results.append((*plain([(*key, *values)])[0], newest))
    return results


@FEW
@given(TIMED, st.sampled_from(KEYS), st.sampled_from(SIZES), st.booleans(), st.sampled_from([1, 2, 7, 1024]))
def test_each_slide_fires_with_the_last_rows_of_its_key(
    rows: list[Any], keys: tuple[int, ...], sizes: tuple[int, int], accumulating: bool, cuts: int
) -> None:
    harness = OperatorHarness(factory(keys, *sizes, accumulating=accumulating), schema=INPUT)
    push_cut(harness, rows, cuts)
    harness.end_input()
    assert emitted(harness) == row_by_row(rows, keys, *sizes, accumulating=accumulating)


@FEW
@given(
    TIMED,
    TIMED,
    st.sampled_from(KEYS[:3]),
    st.sampled_from(SIZES),
    st.booleans(),
    st.sampled_from([(1, 2), (3, 2), (2, 1)]),
)
def test_a_restored_window_goes_on_where_it_was_at_any_parallelism(
    first: list[Any], second: list[Any], keys: tuple[int, ...], sizes: tuple[int, int], accumulating: bool, scales: Any
) -> None:
    rows = rescaled(
        factory(keys, *sizes, accumulating=accumulating),
        keys,
        lambda h: push_cut(h, first, 5),
        lambda h: push_cut(h, second, 3),
        first=scales[0],
        second=scales[1],
    )
    expected = row_by_row([*first, *second], keys, *sizes, accumulating=accumulating)
    assert sorted(rows, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(("sizes", "accumulating"), [((3, 3), False), ((6, 2), False), ((4, 4), True)])
def test_rows_that_no_window_needs_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int], accumulating: bool
) -> None:
    monkeypatch.setattr(count_window, "_SPARE_ROWS", 8)
    rows = [((f"{i % 7}{'x' * (i // 50)}", None, i, "x", True), i) for i in range(400)]
    harness = OperatorHarness(factory((0,), *sizes, accumulating=accumulating), schema=INPUT)
    push_cut(harness, rows, 9)
    assert emitted(harness) == row_by_row(rows, (0,), *sizes, accumulating=accumulating)
    kept = stored(harness.snapshot()).keyed["partials"].num_rows
    assert kept <= 7 * 8 * (4 if sizes == (6, 2) else 1)


def test_a_stream_without_event_time_gives_results_without() -> None:
    harness = OperatorHarness(factory((0,), 2, 2), schema=INPUT)
    push_cut(harness, [(("a", 1, v, "x", True), None) for v in (3, 4)], 1)
    assert harness.timestamps() == [None]


def test_open_windows_do_not_fire_at_the_end() -> None:
    harness = OperatorHarness(factory((0,), 3, 3), schema=INPUT)
    push_cut(harness, [(("a", 1, v, "x", True), v) for v in (3, 4)], 8)
    harness.end_input()
    assert harness.rows() == []


def test_floating_keys_that_are_equal_count_together() -> None:
    schema = Schema.of(f=DOUBLE, v=BIGINT)
    aggregates = (bound("total", "SUM", 1),)
    recipe = CountWindowFactory((0,), aggregates, 2, 2, schema, unbounded_schema((0,), aggregates, schema))
    harness = OperatorHarness(recipe, schema=schema)
    nan = float("nan")
    for f, v in [(0.0, 1), (nan, 10), (-0.0, 2), (nan, 20), (None, 100), (None, 200)]:
        harness.push({"f": pa.array([f], pa.float64()), "v": [v]})
    assert [r[1] for r in harness.rows()] == [3, 30, 300]


def test_null_keys_follow_the_policy() -> None:
    row = (None, 1, 1, "x", True)
    with pytest.raises(DataError, match="key column 'name' is NULL"):
        push_cut(OperatorHarness(factory((0,), 1, 1, null_keys=NullKeys.FAIL), schema=INPUT), [(row, 1)], 1)
    harness = OperatorHarness(factory((0,), 1, 1, null_keys=NullKeys.DROP), schema=INPUT)
    push_cut(harness, [(row, 1)], 1)
    assert harness.rows() == []
    assert harness.metrics.count("numNullKeyRecordsDropped") == 1


def test_state_of_other_aggregates_is_refused() -> None:
    harness = OperatorHarness(factory((0,), 3, 3), schema=INPUT)
    push_cut(harness, [(("a", 1, 1, "x", True), 1)], 1)
    other = factory((0,), 3, 3, aggregates=(bound("n", "COUNT(*)"), bound("least", "MIN", 2)))
    with pytest.raises(StateError, match="state table 'partials' of a window has the columns"):
        OperatorHarness.restore(other, [stored(harness.snapshot())], schema=INPUT)


def test_sizes_must_be_positive_and_recipes_travel() -> None:
    with pytest.raises(ValueError, match="slide of a count window must be positive, not 0"):
        factory((0,), 1, 0)
    recipe = factory((0,), 4, 2)
    assert pickle.loads(pickle.dumps(recipe)) == recipe
