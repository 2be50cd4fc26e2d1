"""Pre-aggregation before the shuffle: the same results, the same late rows, bounded memory."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch, Watermark
from flowrun.core.semantics import TimeDomain
from flowrun.operators.timed.assigners import AlignedSlices, TumblingSlices
from flowrun.operators.windows.slices.factories import LocalSliceAggregateFactory, local_aggregation_applies
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.windows.flink_oracle import AlignedOracle
from tests.operators.windows.slices.test_slice_window import CASES, KEYS, Case, factory
from tests.operators.windows.streams import (
    AGGREGATES,
    EVERYTHING,
    INPUT,
    LATE,
    Stream,
    batches_of,
    by_window,
    columns,
    oracle_log,
    plain,
    random_events,
    streams,
)


def pre_aggregated(
    assigner: AlignedSlices, keys: tuple[int, ...], events: Sequence[Any], cuts: int, max_rows: int
) -> tuple[list[Any], int]:
    """(log, late rows) of a window operator that is fed by a local one."""
    recipe = LocalSliceAggregateFactory(keys, AGGREGATES, assigner, INPUT, max_rows=max_rows)
    local = OperatorHarness(recipe, schema=INPUT)
    window = OperatorHarness(factory(assigner, keys, AGGREGATES, partial_input=True), schema=recipe.output_schema)
    log: list[Any] = []
    for event in batches_of(events, cuts):
        if isinstance(event, int):
            local.watermark(event)
        else:
            local.push(columns([r for r, _ in event]), timestamps=[t for _, t in event])
        for element in local.elements:
            if isinstance(element, RecordBatch):
                window.push(element)
            else:
                assert isinstance(element, Watermark)
                log.append(("rows", plain(window.rows())))
                window.clear()
                window.watermark(element.timestamp)
                log.append(("fired", plain(window.rows())))
                window.clear()
        local.clear()
    log.append(("rows", plain(window.rows())))
    return log, window.metrics.count("numLateRecordsDropped")


@examples(30)
@given(streams(), st.sampled_from(CASES), st.sampled_from(KEYS), st.sampled_from([1, 3, 1024]))
def test_it_changes_neither_results_nor_the_count_of_late_rows(
    stream: Stream, case: Case, keys: tuple[int, ...], cuts: int
) -> None:
    assigner, assign = case
    events = (*stream.events, MAX_TIMESTAMP)
    log, late = pre_aggregated(assigner, keys, events, cuts, max_rows=1000)
    oracle = AlignedOracle(assign, keys, AGGREGATES, 0, assigner.slice_ms)
    assert by_window(log, len(keys)) == by_window(oracle_log(oracle, events), len(keys))
    assert late == len(oracle.late)


@pytest.mark.parametrize("max_rows", [8, 1_000_000])
@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0]))
def test_big_batches_are_folded_under_any_limit(case: Case, max_rows: int) -> None:
    assigner, assign = case
    events = [e for e in random_events(1200, seed=5) if not isinstance(e, int) or e > 100]
    log, late = pre_aggregated(assigner, (0, 1), events, 600, max_rows)
    oracle = AlignedOracle(assign, (0, 1), AGGREGATES, 0, assigner.slice_ms)
    assert by_window(log, 2) == by_window(oracle_log(oracle, events), 2)
    assert late == len(oracle.late)


def test_everything_is_sent_before_a_barrier_and_at_the_end() -> None:
    local = OperatorHarness(LocalSliceAggregateFactory((0,), AGGREGATES, TumblingSlices(1000), INPUT), schema=INPUT)
    rows = [("a", 1, i, "x", True) for i in range(500)]
    local.push(columns(rows), timestamps=[i % 7 for i in range(500)])
    assert local.rows() == [], "rows of an open slice wait"
    assert local.snapshot().is_empty
    assert [r[:3] for r in plain(local.rows())] == [("a", 1000, 500)]
    local.push(columns(rows), timestamps=[5] * 500)
    local.end_input(drain=False)
    assert len(local.rows()) == 2


def test_rows_are_sent_on_when_keys_hardly_repeat() -> None:
    local = OperatorHarness(LocalSliceAggregateFactory((1,), AGGREGATES, TumblingSlices(1000), INPUT), schema=INPUT)
    for start in (0, 400):
        local.push(columns([("a", start + i, i, "x", True) for i in range(400)]), timestamps=[5] * 400)
    assert len(local.rows()) == 400, "the first batch was folded in vain and waits; the second was sent on"
    local.watermark(999)
    assert len(local.rows()) == 800


def test_it_applies_only_where_it_changes_nothing() -> None:
    assert local_aggregation_applies(AGGREGATES)
    assert not local_aggregation_applies(AGGREGATES, late_tag=LATE)
    assert not local_aggregation_applies(AGGREGATES, allowed_lateness_ms=1)
    assert not local_aggregation_applies(AGGREGATES, domain=TimeDomain.PROCESSING)
    for extra in EVERYTHING[len(AGGREGATES) :]:
        assert not local_aggregation_applies((*AGGREGATES, extra))


def test_the_recipe_pickles() -> None:
    recipe = LocalSliceAggregateFactory((0,), AGGREGATES, TumblingSlices(10), INPUT)
    assert pickle.loads(pickle.dumps(recipe)).output_schema == recipe.output_schema
