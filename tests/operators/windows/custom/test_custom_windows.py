"""Users' assigners, triggers and evictors, against Flink's operators row by row."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.process_function import map_state, value_state
from flowrun.api.window_function import Window
from flowrun.api.windowing import Evictor, Trigger, TriggerResult, WindowAssigner
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import STRING
from flowrun.errors import DataError, PipelineError
from flowrun.operators.function_recipe import FunctionRecipe, class_recipe
from flowrun.operators.implementations import create_operator
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.operators.windows.general.collected import CollectedWindowOperator
from flowrun.operators.windows.general.factories import GeneralWindowFactory, SessionAssigner
from flowrun.operators.windows.general.triggers import PurgingTrigger
from flowrun.operators.windows.general.user_assigners import CustomAssigner
from flowrun.operators.windows.general.user_evictors import CustomEvictor
from flowrun.operators.windows.general.user_triggers import as_trigger
from flowrun.testing.harness import OperatorHarness
from tests.examples import examples
from tests.operators.windows.custom.parts import (
    ByNumber,
    ByNumberBatch,
    CountOrEnd,
    Gaps,
    KeepSome,
    KeepSomeBatch,
    Tell,
    WindowOracle,
)
from tests.operators.windows.general_streams import push_cut
from tests.operators.windows.streams import (
    INPUT,
    LATE,
    LateKeeping,
    Stream,
    drive,
    oracle_log,
    random_events,
    run_restored,
    streams,
)
from tests.slices import everyday

FEW = examples(60)
KEYS = ((0,), (0, 1), ())
TEXT = Schema.of(text=STRING)
ORACLES = {ByNumberBatch: ByNumber, KeepSomeBatch: KeepSome}


def factory(
    assigner: Any, trigger: Any, evictor: Any, keys: Sequence[int] = (0,), **options: Any
) -> GeneralWindowFactory:
    if isinstance(assigner, type):
        assigner = CustomAssigner(class_recipe(assigner, WindowAssigner, {}, "window"))
    return GeneralWindowFactory(
        tuple(keys),
        (),
        assigner,
        INPUT,
        TEXT,
        trigger=None if trigger is None else as_trigger(trigger),
        evictor=None if evictor is None else CustomEvictor(class_recipe(evictor, Evictor, {}, "evictor")),
        function=FunctionRecipe.of_code(Tell),
        late_tag=LATE,
        **options,
    )


def oracle(assigner: Any, trigger: Any, evictor: Any, keys: tuple[int, ...], lateness: int) -> WindowOracle:
    made = ORACLES.get(evictor, evictor)
    return WindowOracle(ORACLES.get(assigner, assigner)(), trigger and trigger(), made and made(), keys, lateness)


def window_by_window(log: Sequence[Any]) -> list[Any]:
    """What each window shows between two watermarks, in order."""
    return [(kind, sorted(rows, key=lambda row: row[0].partition(" [")[0])) for kind, rows in log]


@FEW
@given(
    streams(),
    st.sampled_from([ByNumber, ByNumberBatch, Gaps]),
    st.sampled_from([None, CountOrEnd, CountOrEnd]),
    st.sampled_from([None, KeepSome, KeepSomeBatch]),
    st.sampled_from(KEYS),
    st.sampled_from([0, 0, 4, 12]),
    st.sampled_from([1, 2, 7, 1024]),
)
def test_any_windows_triggers_and_evictors_work_as_in_flink_whatever_the_batches(
    stream: Stream, assigner: type, trigger: type, evictor: type, keys: tuple[int, ...], lateness: int, cuts: int
) -> None:
    events = (*stream.events, MAX_TIMESTAMP)
    recipe = pickle.loads(pickle.dumps(factory(assigner, trigger, evictor, keys, allowed_lateness_ms=lateness)))
    harness = LateKeeping(recipe, schema=INPUT)
    log = drive(harness, events, cuts)
    harness.close()
    wanted = oracle(assigner, trigger, evictor, keys, lateness)
    assert window_by_window(log) == window_by_window(oracle_log(wanted, events))
    assert harness.late == wanted.late


@pytest.mark.parametrize("assigner", [ByNumber, Gaps])
@pytest.mark.parametrize("widths", everyday([[2, 3], [1, 2], [3, 1]], 3))
def test_what_is_open_survives_a_restore_at_another_parallelism(assigner: type, widths: list[int]) -> None:
    keys = (0, 1)
    got, expected = run_restored(
        factory(assigner, CountOrEnd, KeepSome, keys, allowed_lateness_ms=5),
        lambda: oracle(assigner, CountOrEnd, KeepSome, keys, 5),
        random_events(400, seed=widths[1]),
        211,
        widths,
        keys,
    )
    assert [timeless(r) for r in got] == [timeless(r) for r in expected]


def timeless(told: str) -> str:
    """Without the watermark, which is not known after a restore until another one comes."""
    return told.rpartition(" ")[0]


def test_arguments_purging_and_windows_that_only_collect_rows() -> None:
    harness = OperatorHarness(
        factory(TumblingSlices(100), PurgingTrigger(as_trigger(CountOrEnd(2))), None), schema=INPUT
    )
    push_cut(harness, [(("a", 1, -v, "x", True), v) for v in range(1, 5)], 3)
    assert [r[0].split(" ", 3)[3].rpartition(" ")[0] for r in harness.rows()] == ["[-1, -2]", "[-3, -4]"]
    recipe = factory(ByNumberBatch, None, None)
    assert isinstance(create_operator(recipe), CollectedWindowOperator)
    trigger = as_trigger(f"{CountOrEnd.__module__}:CountOrEnd", {"rows": 1})
    assert not isinstance(create_operator(factory(ByNumberBatch, trigger, None)), CollectedWindowOperator)
    assert repr(trigger) == "CountOrEnd()"


class Soon(Trigger):
    """Fires some processing time after the first row."""

    waits = value_state("BOOLEAN")

    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> TriggerResult:
        if not self.waits.value():
            self.waits.update(True)
            context.register_processing_time_timer(context.current_processing_time + 50)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, context: Any) -> TriggerResult:
        self.waits.clear()
        return TriggerResult.FIRE_AND_PURGE


class OwnDefault(WindowAssigner):
    """Windows of processing time with a trigger of their own."""

    def is_event_time(self) -> bool:
        return False

    def default_trigger(self) -> Any:
        return Soon()

    def assign_windows(self, row: Any, timestamp: int, context: Any) -> Any:
        assert timestamp == context.current_processing_time
        return [(timestamp // 1000 * 1000, timestamp // 1000 * 1000 + 1000)]


def test_processing_time_and_the_default_trigger_of_an_assigner() -> None:
    harness = OperatorHarness(factory(OwnDefault, None, None, domain=TimeDomain.PROCESSING), schema=INPUT)
    harness.advance_processing_time(100)
    push_cut(harness, [(("a", 1, 1, "x", True), None), (("a", 1, 2, "x", True), None)], 1)
    harness.advance_processing_time(49)
    assert harness.rows() == []
    harness.advance_processing_time(1)
    assert [r[0].partition("[")[2].partition("]")[0] for r in harness.rows()] == ["1, 2"]


class Backwards(WindowAssigner):
    def assign_windows(self, row: Any, timestamp: int, context: Any) -> Any:
        return [Window(5, 5)]


class NoWindow(WindowAssigner):
    def assign_windows(self, row: Any, timestamp: int, context: Any) -> Any:
        return [3]


class Outside(WindowAssigner):
    def assign_windows_batch(self, rows: Any, timestamps: Any, context: Any) -> Any:
        return [7], [0], [10]


class Maybe(Trigger):
    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> Any:
        return True


class Fails(Trigger):
    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> Any:
        return row["absent"]


class Texts(Trigger):
    kept = value_state("BIGINT")

    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> Any:
        self.kept.update("x")


class Invents(Evictor):
    def evict_before(self, elements: Any, window: Window, context: Any) -> Any:
        return [e.value for e in elements]


class ShortMask(Evictor):
    def evict_before_batch(self, rows: Any, timestamps: Any, window: Window, context: Any) -> Any:
        return [True]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Backwards, "gave the window from 5 to 5 ms, which does not end after its start; the row is "),
        (NoWindow, "assign_windows raised TypeError.* windows are Window\\(start, end\\) in ms; the row is"),
        (Outside, "positions must be from 0 to 1"),
        (Maybe, "on_element gave True"),
        (Fails, "on_element raised KeyError"),
        (Texts, "state 'kept' of trigger '.*Texts' is BIGINT, got 'x'"),
        (Invents, "evict_before gave {'name'"),
        (ShortMask, "got 1 values, expected 2"),
    ],
)
def test_errors_name_the_part_that_made_them(part: Any, message: str) -> None:
    assigner = part if issubclass(part, WindowAssigner) else TumblingSlices(10)
    recipe = factory(assigner, part if issubclass(part, Trigger) else None, part if issubclass(part, Evictor) else None)
    harness = OperatorHarness(recipe, schema=INPUT)
    with pytest.raises(DataError, match=f"{part.__name__}'.*{message}"):  # noqa: PT012 - either of the two raises
        push_cut(harness, [(("a", 1, 1, "x", True), 1)] * 2, 2)
        harness.watermark(10)


class Nothing(Trigger): ...


class Mapped(Trigger):
    seen = map_state("STRING", "BIGINT")

    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> Any: ...


class Neither(WindowAssigner): ...


class Idle(Evictor): ...


class TwoForms(Evictor):
    def evict_after(self, elements: Any, window: Window, context: Any) -> Any: ...
    def evict_after_batch(self, rows: Any, timestamps: Any, window: Window, context: Any) -> Any: ...


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Nothing, "has no on_element"),
        (Mapped, "a trigger cannot keep the state 'seen'"),
        (Neither, "has neither assign_windows nor assign_windows_batch"),
        (Idle, "has none of evict_before, evict_after"),
        (TwoForms, "has both evict_after and evict_after_batch"),
    ],
)
def test_parts_that_do_not_keep_to_the_rules_are_refused(part: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        create_operator(
            factory(
                part if issubclass(part, WindowAssigner) else SessionAssigner(5) if part is None else TumblingSlices(5),
                part if issubclass(part, Trigger) else None,
                part if issubclass(part, Evictor) else None,
            )
        ).setup(OperatorHarness(factory(TumblingSlices(5), None, None), schema=INPUT).context, None)  # type: ignore[arg-type]


def test_a_trigger_that_cannot_merge_is_refused_with_windows_that_do() -> None:
    with pytest.raises(ValueError, match=r"Maybe\(\) cannot be used with session windows, which merge"):
        factory(SessionAssigner(5), Maybe, None)
    with pytest.raises(ValueError, match=r"Maybe\(\) cannot be used with windows that merge"):
        factory(Gaps, Maybe, None)
