from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from tests.examples import examples
from tests.operators.windows.flink_oracle import SessionOracle
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
    run_restored,
    streams,
)

KEYS = ((0,), (1,), (0, 1), ())
FEW = examples(30)


def factory(
    gap: int, keys: Sequence[int], aggregates: Sequence[BoundAggregate] = EVERYTHING, **options: Any
) -> SessionWindowFactory:
    return SessionWindowFactory(tuple(keys), tuple(aggregates), gap, INPUT, output_schema(keys, aggregates), **options)


@FEW
@given(
    streams(),
    st.integers(1, 12),
    st.sampled_from(KEYS),
    st.sampled_from([0, 0, 4, 12]),
    st.sampled_from([1, 2, 7, 1024]),
)
def test_sessions_are_what_flink_gives_row_by_row(
    stream: Stream, gap: int, keys: tuple[int, ...], lateness: int, cuts: int
) -> None:
    events = (*stream.events, MAX_TIMESTAMP)
    harness = LateKeeping(factory(gap, keys, allowed_lateness_ms=lateness, late_tag=LATE), schema=INPUT)
    log = drive(harness, events, cuts)
    oracle = SessionOracle(gap, keys, EVERYTHING, lateness)
    assert by_window(log, len(keys)) == by_window(oracle_log(oracle, events), len(keys))
    assert_ordered(log, len(keys))
    assert harness.late == oracle.late
    assert harness.metrics.count("numLateRecordsSideOutput") == len(oracle.late)


@FEW
@given(
    streams(),
    st.integers(1, 12),
    st.sampled_from([(0,), (0, 1)]),
    st.sampled_from([0, 5]),
    st.integers(0, 30),
    st.sampled_from([(1, 1), (1, 3), (2, 1), (3, 2)]),
    st.sampled_from([(0,), (0, 7), (9, 0)]),
)
def test_a_restored_job_goes_on_as_if_nothing_had_happened_at_any_parallelism(
    stream: Stream,
    gap: int,
    keys: tuple[int, ...],
    lateness: int,
    cut: int,
    widths: tuple[int, int],
    lags: tuple[int, ...],
) -> None:
    events = (*stream.events, MAX_TIMESTAMP)
    got, expected = run_restored(
        factory(gap, keys, allowed_lateness_ms=lateness, late_tag=LATE),
        lambda: SessionOracle(gap, keys, EVERYTHING, lateness),
        events,
        min(cut, len(stream.events)),
        widths,
        keys,
        lags,
    )
    assert got == expected
