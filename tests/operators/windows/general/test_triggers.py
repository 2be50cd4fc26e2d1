from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.window_function import Window
from flowrun.api.windowing import TriggerResult
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.semantics import TimeDomain
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.operators.windows.general.factories import GlobalAssigner, SessionAssigner, build_trigger
from flowrun.operators.windows.general.trigger_contract import Trigger, TriggerContext, TriggerRows
from flowrun.operators.windows.general.triggers import (
    AnyTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EarlyLateTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from flowrun.operators.windows.recipes import TriggerRule
from tests.examples import examples

CONTINUE, FIRE, PURGE, BOTH = (
    TriggerResult.CONTINUE,
    TriggerResult.FIRE,
    TriggerResult.PURGE,
    TriggerResult.FIRE_AND_PURGE,
)
WINDOW = Window(0, 10)


@dataclass
class Timers:
    """What one window's trigger remembers and waits for."""

    waiting: set[tuple[bool, int]] = field(default_factory=set)
    state: dict[str, Any] = field(default_factory=dict)

    def context(self, watermark: int = MIN_TIMESTAMP, now: int = 0) -> TriggerContext:
        return TriggerContext(
            watermark,
            now,
            self.state,
            lambda processing, time: self.waiting.add((processing, time)),
            lambda processing, time: self.waiting.discard((processing, time)),
        )


def elements(
    trigger: Trigger, timers: Timers, rows: Sequence[tuple[int, Any]], watermark: int = MIN_TIMESTAMP
) -> list[Any]:
    return [trigger.on_element(t, v, WINDOW, timers.context(watermark)) for t, v in rows]


def test_event_time_waits_for_the_end_and_then_fires_with_every_row() -> None:
    timers, trigger = Timers(), EventTimeTrigger()
    assert elements(trigger, timers, [(1, None), (2, None)]) == [CONTINUE, CONTINUE]
    assert timers.waiting == {(False, 9)}
    assert trigger.on_event_time(5, WINDOW, timers.context(5)) is CONTINUE
    assert trigger.on_event_time(9, WINDOW, timers.context(9)) is FIRE
    assert elements(trigger, timers, [(3, None)], watermark=9) == [FIRE]
    trigger.clear(WINDOW, timers.context())
    assert timers.waiting == set()


def test_processing_time_waits_for_the_end_but_not_for_the_end_of_time() -> None:
    timers, trigger = Timers(), ProcessingTimeTrigger()
    trigger.on_element(1, None, WINDOW, timers.context())
    trigger.on_element(1, None, Window(MIN_TIMESTAMP, MAX_TIMESTAMP), timers.context())
    assert timers.waiting == {(True, 9)}
    assert trigger.on_processing_time(9, WINDOW, timers.context()) is FIRE
    trigger.clear(WINDOW, timers.context())
    assert timers.waiting == set()


def test_a_count_starts_again_after_it_fired_and_adds_up_over_merged_windows() -> None:
    timers, trigger = Timers(), CountTrigger(3)
    assert elements(trigger, timers, [(0, None)] * 7) == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
    others = [Timers(state={"count": 2}).context(), Timers(state={"count": 2}).context()]
    trigger.on_merge(WINDOW, others, timers.context())
    assert elements(trigger, timers, [(0, None)] * 2) == [FIRE, CONTINUE]


@pytest.mark.parametrize(("trigger", "state"), [(CountTrigger(6), "count"), (EarlyLateTrigger(late_count=6), "late")])
def test_rows_of_merged_windows_are_counted_together(trigger: Trigger, state: str) -> None:
    timers = Timers()
    merged = [Timers(state=s).context(9) for s in ({state: 2}, {}, {state: 2})]
    trigger.on_merge(WINDOW, merged, timers.context(9))
    assert elements(trigger, timers, [(0, None)] * 3, watermark=9) == [CONTINUE, FIRE, CONTINUE]


@pytest.mark.parametrize("trigger", [EventTimeTrigger(), EarlyLateTrigger()])
@pytest.mark.parametrize(("watermark", "waiting"), [(8, {(False, 9)}), (9, set()), (10, set())])
def test_a_merged_window_waits_for_its_end_unless_it_is_over(
    trigger: Trigger, watermark: int, waiting: set[tuple[bool, int]]
) -> None:
    timers = Timers()
    trigger.on_merge(WINDOW, [Timers().context(watermark)], timers.context(watermark))
    assert timers.waiting == waiting


def test_a_merged_window_of_processing_time_waits_for_its_end() -> None:
    timers = Timers()
    ProcessingTimeTrigger().on_merge(WINDOW, [Timers().context()], timers.context())
    assert timers.waiting == {(True, 9)}


def test_late_rows_are_counted_anew_once_the_window_has_fired() -> None:
    timers, trigger = Timers(), EarlyLateTrigger(late_count=3)
    assert elements(trigger, timers, [(1, None)] * 2, watermark=9) == [CONTINUE, CONTINUE]
    trigger.on_fired(WINDOW, timers.context(9))
    assert elements(trigger, timers, [(1, None)] * 3, watermark=9) == [CONTINUE, CONTINUE, FIRE]


def test_a_window_that_is_over_leaves_no_count_behind() -> None:
    for trigger in (CountTrigger(6), EarlyLateTrigger(late_count=6)):
        timers = Timers()
        elements(trigger, timers, [(1, None)] * 2, watermark=9)
        assert timers.state != {}
        trigger.clear(WINDOW, timers.context(9))
        assert timers.state == {}


ROWS = st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(-9, 9))), min_size=1, max_size=30)
BUILT = [
    EventTimeTrigger(),
    ProcessingTimeTrigger(),
    CountTrigger(1),
    CountTrigger(4),
    EarlyLateTrigger(3, 2),
    EarlyLateTrigger(None, 3),
    EarlyLateTrigger(4),
    ContinuousProcessingTimeTrigger(4),
    DeltaTrigger(0, 2.5),
    PurgingTrigger(CountTrigger(2)),
    AnyTrigger((EventTimeTrigger(), CountTrigger(3), DeltaTrigger(0, 4))),
]


@pytest.mark.parametrize("trigger", BUILT, ids=str)
@pytest.mark.parametrize("watermark", [MIN_TIMESTAMP, 4, 9, 10])
@examples(15)
@given(ROWS, st.integers(0, 30))
def test_asking_once_for_many_rows_is_asking_for_each(trigger: Trigger, watermark: int, rows: Any, cut: int) -> None:
    one, many = Timers(), Timers()
    expected = [(i, r) for i, r in enumerate(elements(trigger, one, rows, watermark)) if r is not CONTINUE]
    found: list[Any] = []
    for start, part in ((0, rows[:cut]), (cut, rows[cut:])):
        if part:
            asked = TriggerRows(np.array([t for t, _ in part]), [v for _, v in part])
            found += [(start + i, r) for i, r in trigger.on_elements(asked, WINDOW, many.context(watermark))]
    assert found == expected
    assert one == many


def test_merged_windows_that_saw_more_rows_than_are_counted_fire_with_the_next_one() -> None:
    timers, trigger = Timers(), CountTrigger(3)
    trigger.on_merge(WINDOW, [Timers(state={"count": 2}).context()] * 2, timers.context())
    rows = TriggerRows(np.zeros(5, np.int64))
    assert trigger.on_elements(rows, WINDOW, timers.context()) == [(0, FIRE), (3, FIRE)]
    assert trigger.on_elements(rows, WINDOW, timers.context()) == [(1, FIRE), (4, FIRE)]


def test_continuous_firing_waits_for_intervals_with_new_rows() -> None:
    timers, trigger = Timers(), EarlyLateTrigger(3)
    assert elements(trigger, timers, [(1, None), (5, None)]) == [CONTINUE, CONTINUE]
    assert timers.waiting == {(False, 3), (False, 9)}
    assert trigger.on_event_time(3, WINDOW, timers.context(3)) is FIRE
    assert elements(trigger, timers, [(2, None)], watermark=7) == [CONTINUE]
    assert (False, 9) in timers.waiting
    assert trigger.on_event_time(9, WINDOW, timers.context(9)) is FIRE
    assert trigger.on_event_time(12, WINDOW, timers.context(12)) is CONTINUE, "nothing new since the window's end"


def test_early_and_late_firings_surround_the_one_on_time() -> None:
    timers, trigger = Timers(), EarlyLateTrigger(early_ms=4, late_count=2)
    elements(trigger, timers, [(1, None)])
    assert trigger.on_event_time(4, WINDOW, timers.context(4)) is FIRE
    assert trigger.on_event_time(9, WINDOW, timers.context(9)) is FIRE
    assert elements(trigger, timers, [(1, None)] * 4, watermark=9) == [CONTINUE, FIRE, CONTINUE, FIRE]
    trigger.clear(WINDOW, timers.context())
    assert timers.state == {}


def test_without_an_interval_a_window_fires_at_its_end_and_then_late() -> None:
    timers, trigger = Timers(), EarlyLateTrigger(late_count=2)
    elements(trigger, timers, [(1, None)])
    assert timers.waiting == {(False, 9)}
    assert trigger.on_event_time(8, WINDOW, timers.context(8)) is CONTINUE
    assert trigger.on_event_time(9, WINDOW, timers.context(9)) is FIRE
    trigger.clear(WINDOW, timers.context())
    assert timers == Timers()


def test_a_window_that_fires_on_time_has_nothing_new_at_an_interval_that_ends_later() -> None:
    timers, trigger = Timers(), EarlyLateTrigger(4)
    elements(trigger, timers, [(9, None)])
    assert timers.waiting == {(False, 9), (False, 12)}
    assert trigger.on_event_time(9, WINDOW, timers.context(9)) is FIRE
    assert trigger.on_event_time(12, WINDOW, timers.context(12)) is CONTINUE


def test_the_global_window_fires_at_intervals_and_not_on_time() -> None:
    timers, trigger, window = Timers(), EarlyLateTrigger(4), Window(MIN_TIMESTAMP, MAX_TIMESTAMP)
    trigger.on_element(1, None, window, timers.context())
    assert timers.waiting == {(False, 4)}
    assert trigger.on_event_time(4, window, timers.context(4)) is FIRE
    assert trigger.on_event_time(MAX_TIMESTAMP, window, timers.context(MAX_TIMESTAMP)) is CONTINUE


def test_merged_windows_fire_at_the_earliest_of_their_intervals_if_any_of_them_has_new_rows() -> None:
    timers, trigger = Timers(), EarlyLateTrigger(4)
    merged = [
        Timers(state=s).context() for s in ({"next_firing": 8, "changed": 1}, {"next_firing": 4, "changed": 0}, {})
    ]
    trigger.on_merge(WINDOW, merged, timers.context(2))
    assert timers.waiting == {(False, 4), (False, 9)}
    assert trigger.on_event_time(3, WINDOW, timers.context(3)) is CONTINUE
    assert trigger.on_event_time(4, WINDOW, timers.context(4)) is FIRE


def test_merged_windows_have_nothing_new_at_an_interval_if_none_of_them_has() -> None:
    timers, trigger = Timers(), EarlyLateTrigger(4)
    merged = [Timers(state=s).context() for s in ({"next_firing": 8, "changed": 0}, {})]
    trigger.on_merge(WINDOW, merged, timers.context(5))
    assert trigger.on_event_time(8, WINDOW, timers.context(8)) is CONTINUE


def test_a_window_that_has_fired_early_does_not_make_one_that_it_is_merged_with_fire_earlier() -> None:
    trigger, fired, other, merged = EarlyLateTrigger(4), Timers(), Timers(), Timers()
    elements(trigger, fired, [(1, None)])
    assert trigger.on_event_time(4, WINDOW, fired.context(4)) is FIRE
    elements(trigger, other, [(5, None)], watermark=4)
    trigger.on_merge(WINDOW, [fired.context(4), other.context(4)], merged.context(4))
    assert merged.waiting == {(False, 8), (False, 9)}


def test_what_fired_for_another_reason_has_nothing_new_at_its_interval() -> None:
    for trigger in (EarlyLateTrigger(4), ContinuousProcessingTimeTrigger(4)):
        timers = Timers()
        elements(trigger, timers, [(1, None)])
        trigger.on_fired(WINDOW, timers.context())
        at = trigger.on_event_time if isinstance(trigger, EarlyLateTrigger) else trigger.on_processing_time
        assert at(4, WINDOW, timers.context(4, now=4)) is CONTINUE


@pytest.mark.parametrize(("watermark", "following"), [(7, 8), (8, 12), (15, 16), (16, 20), (17, 20)])
def test_an_interval_that_was_missed_is_made_up_for_at_the_next_one(watermark: int, following: int) -> None:
    timers, trigger = Timers(), EarlyLateTrigger(4)
    elements(trigger, timers, [(1, None)])
    assert trigger.on_event_time(4, Window(0, 100), timers.context(4)) is FIRE
    timers.waiting.clear()
    trigger.on_element(5, None, Window(0, 100), timers.context(watermark))
    assert timers.waiting == {(False, following), (False, 99)}


def test_rows_that_come_before_a_timer_that_is_due_has_run_do_not_put_it_off() -> None:
    timers, trigger = Timers(), ContinuousProcessingTimeTrigger(10)
    trigger.on_element(0, None, WINDOW, timers.context(now=104))
    trigger.on_element(0, None, WINDOW, timers.context(now=112))
    assert timers.waiting == {(True, 110)}
    assert trigger.on_processing_time(110, WINDOW, timers.context(now=112)) is FIRE


def test_an_interval_that_is_over_is_not_waited_for_once_the_window_is() -> None:
    for trigger in (EarlyLateTrigger(4), ContinuousProcessingTimeTrigger(4)):
        timers = Timers()
        elements(trigger, timers, [(1, None)])
        assert timers != Timers()
        trigger.clear(WINDOW, timers.context())
        assert timers == Timers()


def test_continuous_processing_time_follows_the_clock() -> None:
    timers, trigger = Timers(), ContinuousProcessingTimeTrigger(10)
    trigger.on_element(0, None, WINDOW, timers.context(now=104))
    assert timers.waiting == {(True, 110)}
    assert trigger.on_processing_time(110, WINDOW, timers.context(now=110)) is FIRE
    assert trigger.on_processing_time(120, WINDOW, timers.context(now=120)) is CONTINUE
    trigger.clear(WINDOW, timers.context())
    assert timers.state == {}


def test_a_delta_compares_with_the_last_firing_and_overlooks_nulls() -> None:
    rows = [(0, v) for v in (10, 12, None, 13, 11, 16)]
    assert elements(DeltaTrigger(0, 2.5), Timers(), rows) == [CONTINUE, CONTINUE, CONTINUE, FIRE, CONTINUE, FIRE]


def test_a_delta_compares_with_the_newest_number_once_another_trigger_has_fired() -> None:
    timers, trigger = Timers(), DeltaTrigger(0, 2.5)
    trigger.on_fired(WINDOW, timers.context())
    assert timers.state == {}, "nothing was seen yet"
    elements(trigger, timers, [(0, 10), (0, 12)])
    trigger.on_fired(WINDOW, timers.context())
    assert elements(trigger, timers, [(0, 13), (0, 14.5), (0, 14.6)]) == [CONTINUE, CONTINUE, FIRE]


def test_purging_forgets_whenever_the_other_fires() -> None:
    timers, trigger = Timers(), PurgingTrigger(EventTimeTrigger())
    assert trigger.on_element(1, None, WINDOW, timers.context()) is CONTINUE
    assert trigger.on_event_time(9, WINDOW, timers.context(9)) is BOTH
    assert trigger.can_merge


def test_combined_triggers_count_from_any_firing() -> None:
    timers, trigger = Timers(), AnyTrigger((CountTrigger(3), DeltaTrigger(0, 5)))
    results = elements(trigger, timers, [(0, v) for v in (0, 9, 9, 9, 9, 13)])
    assert results == [CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
    assert not trigger.can_merge
    assert trigger.column == 0


def test_combined_triggers_are_all_told_of_merges_firings_and_the_end() -> None:
    timers, trigger = Timers(), AnyTrigger((CountTrigger(6), EarlyLateTrigger(late_count=6)))
    merged = [Timers(state={"0.count": 2, "1.late": 1}).context(9) for _ in range(2)]
    trigger.on_merge(WINDOW, merged, timers.context(9))
    assert timers.state == {"0.count": 4, "1.late": 2}
    trigger.on_fired(WINDOW, timers.context(9))
    assert timers.state == {"0.count": 0, "1.late": 0}
    trigger.clear(WINDOW, timers.context(9))
    assert timers.state == {}


def test_what_purges_can_merge_and_reads_what_the_other_does() -> None:
    count, delta = PurgingTrigger(CountTrigger(2)), PurgingTrigger(DeltaTrigger(3, 2.5))
    assert (count.can_merge, count.column) == (True, None)
    assert (delta.can_merge, delta.column) == (False, 3)


def test_results_say_what_happens() -> None:
    assert [(r.fires, r.purges) for r in (CONTINUE, FIRE, PURGE, BOTH)] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    ]


@pytest.mark.parametrize(
    ("rule", "assigner", "domain", "expected"),
    [
        (None, TumblingSlices(10), TimeDomain.EVENT, EventTimeTrigger()),
        (None, GlobalAssigner(), TimeDomain.EVENT, EventTimeTrigger()),
        (None, GlobalAssigner(), TimeDomain.PROCESSING, ProcessingTimeTrigger()),
        (TriggerRule(purge=True), SessionAssigner(5), TimeDomain.EVENT, PurgingTrigger(EventTimeTrigger())),
        (TriggerRule(every_ms=4), TumblingSlices(10), TimeDomain.EVENT, EarlyLateTrigger(4)),
        (TriggerRule(count=4), TumblingSlices(10), TimeDomain.EVENT, AnyTrigger((EventTimeTrigger(), CountTrigger(4)))),
        (TriggerRule(delta=1, threshold=2.0), GlobalAssigner(), TimeDomain.EVENT, DeltaTrigger(1, 2.0)),
        (
            TriggerRule(every_ms=4),
            TumblingSlices(10),
            TimeDomain.PROCESSING,
            AnyTrigger((ProcessingTimeTrigger(), ContinuousProcessingTimeTrigger(4))),
        ),
    ],
)
def test_rules_become_triggers(rule: TriggerRule | None, assigner: Any, domain: TimeDomain, expected: Trigger) -> None:
    built = build_trigger(rule, assigner, domain)
    assert built == expected
    assert pickle.loads(pickle.dumps(built)) == built


@pytest.mark.parametrize(
    "make",
    [
        lambda: CountTrigger(0),
        lambda: EarlyLateTrigger(early_ms=0),
        lambda: EarlyLateTrigger(late_count=0),
        lambda: ContinuousProcessingTimeTrigger(-1),
        lambda: TriggerRule(count=0),
    ],
)
def test_numbers_must_be_positive(make: Any) -> None:
    with pytest.raises(ValueError, match="of a trigger must be positive, not"):
        make()


def test_a_delta_cannot_be_told_to_merge() -> None:
    make: Any = DeltaTrigger
    with pytest.raises(TypeError, match="can_merge"):
        make(0, 2.5, can_merge=True)


def test_a_delta_needs_its_threshold() -> None:
    with pytest.raises(ValueError, match="needs both delta and threshold"):
        TriggerRule(delta=1)
