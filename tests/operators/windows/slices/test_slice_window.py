"""Aligned windows against the row-at-a-time oracle: any stream, window, lateness, batch size, parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.operators.timed.assigners import AlignedSlices, CumulativeSlices, SlidingSlices, TumblingSlices
from flowrun.operators.windows.slices.factories import SliceWindowFactory
from tests.examples import examples
from tests.operators.windows.flink_oracle import AlignedOracle, Window, cumulative, sliding, tumbling
from tests.operators.windows.streams import (
    EVERYTHING,
    INPUT,
    LATE,
    LateKeeping,
    Stream,
    assert_ordered,
    by_window,
    drive,
    oracle_log,
    output_schema,
    random_events,
    run_restored,
    streams,
)
from tests.slices import everyday

Case = tuple[AlignedSlices, Callable[[int], list[Window]]]

CASES: tuple[Case, ...] = (
    (TumblingSlices(10), tumbling(10)),
    (TumblingSlices(7, offset_ms=3), tumbling(7, 3)),
    (SlidingSlices(10, 5), sliding(10, 5)),
    (SlidingSlices(15, 6, offset_ms=-2), sliding(15, 6, -2)),
    (SlidingSlices(4, 10), sliding(4, 10)),
    (SlidingSlices(40, 2), sliding(40, 2)),
    (CumulativeSlices(20, 5), cumulative(20, 5)),
    (CumulativeSlices(20, 2, offset_ms=1), cumulative(20, 2, 1)),
)
KEYS = ((0,), (1,), (0, 1), ())
FEW = examples(30)


def factory(
    assigner: AlignedSlices, keys: Sequence[int], aggregates: Sequence[BoundAggregate] = EVERYTHING, **options: Any
) -> SliceWindowFactory:
    return SliceWindowFactory(
        tuple(keys), tuple(aggregates), assigner, INPUT, output_schema(keys, aggregates), **options
    )


@FEW
@given(
    streams(),
    st.sampled_from(CASES),
    st.sampled_from(KEYS),
    st.sampled_from([0, 0, 4, 12]),
    st.sampled_from([1, 2, 7, 1024]),
)
def test_every_window_type_gives_what_flink_gives_row_by_row(
    stream: Stream, case: Case, keys: tuple[int, ...], lateness: int, cuts: int
) -> None:
    assigner, assign = case
    events = (*stream.events, MAX_TIMESTAMP)
    harness = LateKeeping(factory(assigner, keys, allowed_lateness_ms=lateness, late_tag=LATE), schema=INPUT)
    log = drive(harness, events, cuts)
    oracle = AlignedOracle(assign, keys, EVERYTHING, lateness, assigner.slice_ms)
    assert by_window(log, len(keys)) == by_window(oracle_log(oracle, events), len(keys))
    assert_ordered(log, len(keys))
    assert harness.late == oracle.late
    assert harness.metrics.count("numLateRecordsSideOutput") == len(oracle.late)


@FEW
@given(
    streams(),
    st.sampled_from(CASES),
    st.sampled_from([(0,), (0, 1)]),
    st.sampled_from([0, 5]),
    st.integers(0, 30),
    st.sampled_from([(1, 1), (1, 3), (2, 1), (3, 2)]),
    st.sampled_from([(0,), (0, 7), (9, 0)]),
)
def test_a_restored_job_goes_on_as_if_nothing_had_happened_at_any_parallelism(
    stream: Stream,
    case: Case,
    keys: tuple[int, ...],
    lateness: int,
    cut: int,
    widths: tuple[int, int],
    lags: tuple[int, ...],
) -> None:
    assigner, assign = case
    events = (*stream.events, MAX_TIMESTAMP)
    got, expected = run_restored(
        factory(assigner, keys, allowed_lateness_ms=lateness, late_tag=LATE),
        lambda: AlignedOracle(assign, keys, EVERYTHING, lateness, assigner.slice_ms),
        events,
        min(cut, len(stream.events)),
        widths,
        keys,
        lags,
    )
    assert got == expected


@pytest.mark.parametrize(
    ("case", "cuts"),
    everyday(product(CASES, [1, 7, 200, 5000]), 3),
    ids=lambda value: repr(value[0]) if isinstance(value, tuple) else None,
)
def test_batches_of_any_size_give_the_same_rows(case: Case, cuts: int) -> None:
    assigner, assign = case
    events = random_events(600 if cuts > 7 else 120, seed=11)
    harness = LateKeeping(factory(assigner, (0,), allowed_lateness_ms=6, late_tag=LATE), schema=INPUT)
    log = drive(harness, events, cuts)
    oracle = AlignedOracle(assign, (0,), EVERYTHING, 6, assigner.slice_ms)
    assert by_window(log, 1) == by_window(oracle_log(oracle, events), 1)
    assert harness.late == oracle.late
