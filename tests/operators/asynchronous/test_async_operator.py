"""Asynchronous functions: order, watermarks, room, time limits, repetitions, errors and snapshots."""

from __future__ import annotations

import pickle
import random
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.async_function import AsyncRetryStrategy
from flowrun.api.operator import OutputTag
from flowrun.core.elements import IDLE, MAX_TIMESTAMP, RecordBatch, Watermark
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA, OnError, RowErrors
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.errors import DataError, PipelineError
from flowrun.operators.asynchronous.factories import AsyncFunctionFactory, WaitMode
from flowrun.operators.asynchronous.loading import load_async_function
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.testing import OperatorHarness
from tests.operators.asynchronous.functions import GATES, Flaky, Gate

N = Schema.of(n=BIGINT)
HERE = "tests.operators.asynchronous.functions:"
ORDERED, UNORDERED = WaitMode.ORDERED, WaitMode.UNORDERED
COPIES = OutputTag("copies", N)


def factory(function: str, *arguments: Any, mode: WaitMode = ORDERED, **options: Any) -> AsyncFunctionFactory:
    named = dict(zip(("gate",) if function.startswith("Gated") else ("times",), arguments, strict=False))
    made = AsyncFunctionFactory(FunctionRecipe(HERE + function, named), N, N, mode, **options)
    return pickle.loads(pickle.dumps(made))


class Step:
    """One subtask whose calls end when the test lets them."""

    def __init__(self, function: str = "Gated", *, restored: Any = None, subtask: int = 0, **options: Any) -> None:
        name = uuid.uuid4().hex
        self.gate = GATES[name] = Gate()
        self.recipe = factory(function, name, **options)
        self.harness = (
            OperatorHarness(self.recipe, schema=N, subtask=subtask, parallelism=subtask + 1)
            if restored is None
            else OperatorHarness.restore(self.recipe, restored[0], schema=N, **restored[1])
        )

        self.ended = 0
        self._note_end = self.operator._ended
        self.operator._ended = self._count_end

    def _count_end(self, call: Any) -> None:
        self.ended += 1
        self._note_end(call)

    @property
    def operator(self) -> Any:
        return self.harness.operator

    def push(self, *numbers: int, times: list[int] | None = None) -> None:
        self.harness.push({"n": list(numbers)}, timestamps=times)

    def finish(self, *numbers: int) -> None:
        """Let calls of these rows end, one after the other, and have the operator see each."""
        for number in numbers:
            ended = self.ended
            self.gate.let_through(number)
            while self.ended == ended:
                assert self.operator._calls.wait(10), f"the call of {number} did not end"
                self.harness.settle()

    def log(self) -> list[Any]:
        return [e.timestamp if isinstance(e, Watermark) else e for e in self.harness.log()]


def test_in_order_results_wait_for_those_before_them() -> None:
    step = Step()
    step.push(1, 2, 3)
    step.gate.wait_until_begun(3)
    step.finish(3, 1)
    assert step.harness.rows() == [(2,)]
    step.finish(2)
    assert step.harness.rows() == [(2,), (4,), (6,)]
    step.harness.close()
    assert step.gate.life == ["open 0/1", "close"]


def test_without_order_results_leave_as_they_come_but_not_beyond_a_watermark() -> None:
    step = Step(mode=UNORDERED)
    step.push(1, 2, times=[10, 20])
    step.harness.watermark(20)
    step.push(3, 4, times=[30, 40])
    step.harness.watermark(40)
    step.gate.wait_until_begun(4)
    step.finish(4, 2)
    assert step.log() == [(4,)]
    step.finish(1)
    assert step.log() == [(4,), (2,), 20, (8,)]
    step.finish(3)
    assert step.log() == [(4,), (2,), 20, (8,), (6,), 40]
    assert step.harness.timestamps() == [20, 10, 40, 30]
    step.harness.close()


@pytest.mark.parametrize("mode", list(WaitMode))
def test_watermarks_and_idleness_are_not_overtaken_and_pass_at_once_when_nothing_is_under_way(mode: WaitMode) -> None:
    step = Step(mode=mode)
    step.harness.watermark(5)
    assert step.log() == [5]
    step.push(1, times=[10])
    step.harness.watermark(10)
    step.harness.status(IDLE)
    assert step.log() == [5]
    step.finish(1)
    assert step.log() == [5, (2,), 10, IDLE]
    step.harness.close()


@pytest.mark.parametrize("mode", list(WaitMode))
def test_no_more_calls_are_under_way_than_there_is_room_for(mode: WaitMode) -> None:
    step = Step(mode=mode, capacity=2)
    assert step.operator.accepts_rows
    step.push(1, 2, 3, 4)
    step.gate.wait_until_begun(2)
    assert not step.operator.accepts_rows
    assert step.gate.begun == [1, 2]
    step.finish(1)
    step.gate.wait_until_begun(3)
    assert step.gate.begun == [1, 2, 3]
    assert step.harness.metrics.gauges["asyncCallsInFlight"]() == 2
    step.finish(2)
    step.gate.wait_until_begun(4)
    assert step.operator.accepts_rows
    assert not step.operator.is_at_rest
    step.finish(3, 4)
    assert step.operator.is_at_rest
    assert step.harness.rows() == [(2,), (4,), (6,), (8,)]
    step.harness.close()


def test_in_order_a_result_that_waits_for_others_takes_room() -> None:
    step = Step(capacity=2)
    step.push(1, 2, 3)
    step.gate.wait_until_begun(2)
    step.finish(2)
    assert step.gate.begun == [1, 2]
    step.finish(1)
    step.gate.wait_until_begun(3)
    step.finish(3)
    step.harness.close()


def test_closing_cancels_what_is_under_way() -> None:
    step = Step()
    step.push(1, 2)
    step.gate.wait_until_begun(2)
    step.harness.close()
    assert sorted(step.gate.cancelled) == [1, 2]
    assert step.gate.life == ["open 0/1", "close"]


def run(harness: OperatorHarness, *numbers: int) -> None:
    harness.push({"n": list(numbers)})
    harness.end_input()


@pytest.mark.parametrize("function", ["Plain", "Copies"])
def test_a_call_may_give_no_row_or_several(function: str) -> None:
    harness = OperatorHarness(factory(function, side_outputs=(COPIES,)), schema=N)
    harness.push({"n": [2, -1, 0, 1]}, timestamps=[1, 2, 3, 4])
    harness.end_input()
    if function == "Plain":
        assert harness.rows() == [(2,), (2,), (0,), (0,), (1,), (1,)]
    else:
        assert harness.rows() == [(2,), (2,), (1,)]
        assert harness.timestamps() == [1, 1, 4]
        assert harness.side_rows("copies") == [(0,), (1,), (0,)]
    harness.close()


def test_a_side_output_that_is_not_declared_is_an_error() -> None:
    with (
        OperatorHarness(factory("Copies"), schema=N) as harness,
        pytest.raises(DataError, match=r"has no side output 'copies'; the row is \{n: 1\}"),
    ):
        run(harness, 1)


# ---- time limits and repetitions


def test_a_call_that_takes_too_long_is_an_error_that_names_the_row() -> None:
    step = Step(timeout_ms=50)
    step.push(1, 2)
    step.gate.wait_until_begun(2)
    step.finish(1)
    step.harness.advance_processing_time(49)
    with pytest.raises(DataError, match=r"gave nothing within 50 ms; the row is \{n: 2\}"):
        step.harness.advance_processing_time(1)
    step.harness.close()


def test_a_function_may_say_what_counts_when_time_is_up() -> None:
    step = Step("GatedWithTimeout", timeout_ms=50)
    step.push(1, 2)
    step.gate.wait_until_begun(2)
    step.finish(2)
    step.harness.advance_processing_time(50)
    after_calls(step.harness, 0)
    assert step.harness.rows() == [(-1,), (4,)]
    assert step.gate.cancelled == [1]
    assert step.harness.metrics.count("numAsyncTimeouts") == 1
    step.gate.let_through(1)
    step.harness.end_input()
    assert step.harness.rows() == [(-1,), (4,)], "what the cancelled call gives does not count"
    step.harness.close()


def test_each_row_has_its_own_time_from_its_first_call() -> None:
    step = Step("GatedWithTimeout", timeout_ms=50, capacity=1)
    step.push(1, 2)
    step.harness.advance_processing_time(49)
    step.finish(1)
    step.harness.advance_processing_time(49)
    assert step.harness.rows() == [(2,)]
    step.finish(2)
    assert step.harness.rows() == [(2,), (4,)]
    step.harness.close()


def after_calls(harness: OperatorHarness, ms: int) -> None:
    """Have the operator see the calls that are under way end, then move time on."""
    while harness.operator._under_way:
        assert harness.operator._calls.wait(10)
        harness.settle()
    harness.advance_processing_time(ms)


def test_a_call_that_raises_is_repeated_after_each_delay() -> None:
    retry = AsyncRetryStrategy.exponential_backoff(3, 10, 30)
    harness = OperatorHarness(factory("Flaky", 3, retry=retry), schema=N)
    harness.push({"n": [1]})
    for delay, attempt in ((10, 1), (20, 2), (30, 3)):
        after_calls(harness, delay - 1)
        assert Flaky.calls[1] == attempt
        harness.advance_processing_time(1)
    after_calls(harness, 0)
    assert harness.rows() == [(4,)]
    assert harness.metrics.count("numAsyncRetries") == 3
    harness.close()


def test_a_call_is_repeated_no_more_often_than_it_may_be() -> None:
    harness = OperatorHarness(factory("Flaky", 3, retry=AsyncRetryStrategy.fixed_delay(2, 10)), schema=N)
    harness.push({"n": [1]})
    after_calls(harness, 10)
    with pytest.raises(DataError, match=r"raised ConnectionError: not now at .*functions\.py"):  # noqa: PT012 - maybe before time is moved on
        after_calls(harness, 10)
        after_calls(harness, 0)
    assert Flaky.calls[1] == 3
    harness.close()


def test_the_time_limit_holds_for_all_repetitions_together() -> None:
    retry = AsyncRetryStrategy.fixed_delay(100, 10)
    harness = OperatorHarness(factory("Flaky", 1000, retry=retry, timeout_ms=25), schema=N)
    harness.push({"n": [1]})
    after_calls(harness, 10)
    after_calls(harness, 10)
    after_calls(harness, 4)
    with pytest.raises(DataError, match=r"gave nothing within 25 ms \(3 calls\)"):
        after_calls(harness, 1)
    harness.close()


def test_predicates_say_which_results_and_exceptions_are_worth_another_call() -> None:
    retry = {
        "retry": AsyncRetryStrategy.fixed_delay(5, 10),
        "repeats_result": FunctionRecipe(HERE + "is_empty"),
        "repeats_exception": FunctionRecipe(HERE + "is_value_error"),
    }
    harness = OperatorHarness(factory("Empty", **retry), schema=N)
    harness.push({"n": [7]})
    after_calls(harness, 10)
    after_calls(harness, 10)
    after_calls(harness, 0)
    assert harness.rows() == [(7,)]
    harness.close()
    harness = OperatorHarness(factory("Flaky", 1, **retry), schema=N)
    with pytest.raises(DataError, match="ConnectionError"):  # noqa: PT012 - maybe in the first of them
        harness.push({"n": [1]})
        after_calls(harness, 0)
    harness.close()


# ---- errors


def test_an_error_names_function_line_and_row() -> None:
    with OperatorHarness(factory("Unlucky", name="enrich"), schema=N) as harness:
        expected = r"function '.*:Unlucky' of 'enrich' raised ValueError: no luck with 3 at .*functions\.py:\d+; the row is \{n: 3\}"
        with pytest.raises(DataError, match=expected):
            run(harness, 1, 2, 3)


@pytest.mark.parametrize("mode", list(WaitMode))
@pytest.mark.parametrize("function", ["Unlucky", "WrongRows", "Impatient"])
def test_rows_that_fail_are_left_out_and_kept_aside(function: str, mode: WaitMode) -> None:
    errors = RowErrors(OnError.DEAD_LETTER, "step 'enrich'")
    with OperatorHarness(factory(function, mode=mode, errors=errors), schema=N) as harness:
        harness.push({"n": [1, 2, 3, 4, 5, 6, 7]})
        harness.end_input()
        assert sorted(harness.rows()) == [(1,), (2,), (4,), (5,), (7,)]
        letters = [dict(zip(DEAD_LETTER_SCHEMA.names, row, strict=True)) for row in harness.side_rows("dead letters")]
        assert [(letter["kind"], letter["text"]) for letter in letters] == [
            ("function", '{"n":3}'),
            ("function", '{"n":6}'),
        ]
        assert harness.metrics.count("numRecordsDeadLettered") == 2


def test_a_service_that_is_not_there_fails_the_job_though_rows_are_left_out() -> None:
    """No row is at fault: after a restart it may be there again."""
    errors = RowErrors(OnError.SKIP, "step 'enrich'")
    with (
        OperatorHarness(factory("Flaky", 9, errors=errors), schema=N) as harness,
        pytest.raises(DataError, match="ConnectionError: not now"),
    ):
        run(harness, 1)


def test_a_row_whose_time_is_up_is_left_out_as_well() -> None:
    step = Step(timeout_ms=50, errors=RowErrors(OnError.SKIP, "step 'enrich'"))
    step.push(1, 2)
    step.gate.wait_until_begun(2)
    step.finish(2)
    step.harness.advance_processing_time(50)
    assert step.harness.rows() == [(4,)]
    assert step.harness.metrics.count("numRecordsSkipped") == 1
    step.harness.close()


def test_changes_do_not_leave_without_order() -> None:
    with OperatorHarness(factory("Plain"), schema=N) as harness:
        harness.push({"n": [1, 1]}, row_kinds=[1, 2])
        harness.end_input()
        assert harness.changes() == [("-U", (1,)), ("-U", (1,)), ("+U", (1,)), ("+U", (1,))]
    with (
        OperatorHarness(factory("Plain", mode=UNORDERED), schema=N) as harness,
        pytest.raises(DataError, match="use ordered mode") as raised,
    ):
        harness.push({"n": [1, 1]}, row_kinds=[1, 2])
    assert "cannot leave without order" in raised.value.message


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("NotAsync", "'async_invoke' is not asynchronous"),
        ("Nothing", "neither async_invoke nor async_invoke_batch"),
        ("Both", "has both async_invoke and async_invoke_batch"),
        ("TooMany", r"cannot be called with \(row, context\)"),
        ("is_empty", "is an object of type function, not an asynchronous function"),
    ],
)
def test_functions_that_do_not_keep_to_the_rules_are_refused(function: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        load_async_function(FunctionRecipe(HERE + function))


# ---- by batch


def test_a_function_on_batches_is_given_a_few_rows_at_a_time() -> None:
    with OperatorHarness(factory("EvenOnly", call_rows=3), schema=N) as harness:
        harness.push({"n": list(range(10))}, timestamps=list(range(10)))
        harness.end_input()
        assert harness.rows() == [(0,), (2,), (4,), (6,), (8,)]
        assert harness.timestamps() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("mode", list(WaitMode))
def test_of_a_batch_that_fails_the_rows_at_fault_are_found(mode: WaitMode) -> None:
    errors = RowErrors(OnError.SKIP, "step 'enrich'")
    recipe = factory("ByBatch", mode=mode, errors=errors, call_rows=7, capacity=2, side_outputs=(COPIES,))
    with OperatorHarness(recipe, schema=N) as harness:
        harness.push({"n": list(range(20))})
        harness.end_input()
        good = [n for n in range(20) if n % 3]
        found = [n for (n,) in harness.rows()]
        assert (found if mode is ORDERED else sorted(found)) == [2 * n for n in good]
        assert sorted(harness.side_rows("copies")) == [(n,) for n in good]
        assert harness.metrics.count("numRecordsSkipped") == 7


# ---- snapshots


@pytest.mark.parametrize("mode", list(WaitMode))
def test_rows_under_way_or_not_begun_are_called_again_after_a_restore_and_results_do_not_double(mode: WaitMode) -> None:
    step = Step(mode=mode, capacity=3)
    step.push(1, 2, 3, 4, 5, times=[1, 2, 3, 4, 5])
    step.harness.watermark(5)
    step.push(6, times=[6])
    step.harness.watermark(6)
    step.gate.wait_until_begun(3)
    step.finish(1)
    snapshot = step.harness.snapshot()
    assert step.harness.rows() == [(2,)]
    step.harness.close()

    again = Step(mode=mode, capacity=3, restored=([snapshot], {}))
    again.finish(2, 3, 4, 5, 6)
    assert again.log() == [(4,), (6,), (8,), (10,), 5, (12,), 6]
    assert again.harness.timestamps() == [2, 3, 4, 5, 6]
    again.harness.close()


def test_of_a_result_that_waits_in_order_at_a_snapshot_the_call_is_made_again() -> None:
    step = Step()
    step.push(1, 2)
    step.gate.wait_until_begun(2)
    step.finish(2)
    snapshot = step.harness.snapshot()
    step.harness.close()
    again = Step(restored=([snapshot], {}))
    again.finish(1, 2)
    assert again.harness.rows() == [(2,), (4,)]
    again.harness.close()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_rows_of_several_subtasks_are_dealt_out_and_none_gets_behind_its_watermark(parallelism: int) -> None:
    snapshots = []
    for subtask, (numbers, watermark) in enumerate(((range(10), 100), (range(10, 20), 50))):
        step = Step(capacity=2, subtask=subtask)
        step.push(*numbers, times=[50 + n for n in numbers])
        step.harness.watermark(watermark)
        step.push(100 + watermark, times=[watermark + 1])
        snapshots.append(step.harness.snapshot())
        step.harness.close()
    rows: Counter[Any] = Counter()
    for subtask in range(parallelism):
        recipe = factory("Doubled")
        options = {"subtask": subtask, "parallelism": parallelism}
        harness = OperatorHarness.restore(recipe, snapshots, schema=N, **options)
        harness.end_input(drain=False)
        rows.update(harness.rows())
        if parallelism != 2:
            seen = -(2**63)
            for element in harness.elements:
                if isinstance(element, Watermark):
                    seen = element.timestamp
                elif isinstance(element, RecordBatch) and element.timestamps is not None:
                    assert min(element.timestamps.to_pylist()) > seen
            assert harness.watermarks() == [50]
        else:
            assert harness.watermarks() == [(100, 50)[subtask]]
        harness.close()
    assert rows == Counter([(2 * n,) for n in (*range(20), 200, 150)])


def test_the_end_of_time_is_not_part_of_a_snapshot() -> None:
    step = Step()
    step.push(1, times=[5])
    step.harness.watermark(7)
    step.harness.watermark(MAX_TIMESTAMP)
    snapshot = step.harness.snapshot()
    step.harness.close()
    again = Step(restored=([snapshot], {}))
    again.push(2, times=[8])
    again.finish(1, 2)
    assert again.log() == [(2,), 7, (4,)]
    again.harness.close()


def test_a_call_that_failed_unseen_does_not_only_decline_the_checkpoint() -> None:
    """What an operator raises while it prepares a snapshot costs the snapshot, not the job."""
    with OperatorHarness(factory("Unlucky"), schema=N) as harness:
        harness.operator.process_batch(harness.batch({"n": [3]}))
        assert harness.operator._calls.wait(10)
        harness.operator.prepare_snapshot(1)
        assert harness.operator.snapshot_state(1).operator["rows in flight"].rows.num_rows == 1
        with pytest.raises(DataError, match="no luck with 3"):
            harness.settle()


@pytest.mark.parametrize("name", ["__time", "__subtask"])
def test_a_column_cannot_have_a_name_of_the_state(name: str) -> None:
    recipe = AsyncFunctionFactory(FunctionRecipe(HERE + "Plain"), Schema.of(**{name: BIGINT}), N)
    with pytest.raises(PipelineError, match=f"no column of its input can be called '{name}'"):
        OperatorHarness(recipe)


def test_the_columns_of_the_state_are_told_apart_in_its_files() -> None:
    step = Step()
    step.push(1, times=[5])
    rows = step.harness.snapshot().operator["rows in flight"].rows
    step.harness.close()
    assert rows.column_names == ["__from_subtask", "__watermark", "__time", "__kind", "n"]


# ---- against a model


@pytest.mark.parametrize("mode", list(WaitMode))
@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_batches_and_snapshots_each_row_leaves_once_between_its_watermarks(
    mode: WaitMode, seed: int
) -> None:
    chosen = random.Random(seed)
    numbers = list(range(200))
    expected: list[list[int]] = [[]]
    recipe = factory("Doubled", mode=mode, capacity=chosen.choice((1, 3, 50)))
    harness = OperatorHarness(recipe, schema=N)
    log: list[Any] = []
    at = 0
    while at < len(numbers):
        rows = numbers[at : at + chosen.choice((1, 7, 40))]
        at += len(rows)
        harness.push(pa.record_batch({"n": pa.array(rows, pa.int64())}), timestamps=rows)
        expected[-1] += [2 * n for n in rows]
        if chosen.random() < 0.5:
            harness.watermark(rows[-1])
            expected.append([])
        if chosen.random() < 0.2:
            # Not the harness's snapshot, which lets the operator go on behind it.
            snapshot = harness.operator.snapshot_state(1)
            log += harness.log()
            harness.close()
            harness = OperatorHarness.restore(recipe, [snapshot], schema=N)
    harness.end_input(drain=False)
    log += harness.log()
    harness.close()
    found: list[list[int]] = [[]]
    seen = -1
    for element in log:
        if not isinstance(element, Watermark):
            found[-1].append(element[0])
        elif element.timestamp > seen:  # after a restore the last one comes again
            seen = element.timestamp
            found.append([])
    if mode is UNORDERED:
        found = [sorted(part) for part in found]
    assert found == expected


# ---- where no mails run


def test_more_rows_than_may_wait_are_worked_off_where_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowrun.operators.asynchronous.operator._MAX_WAITING_ROWS", 5)
    with OperatorHarness(factory("Doubled", capacity=3), schema=N) as harness:
        harness.operator.process_batch(harness.batch({"n": list(range(50))}))
        assert len(harness.rows()) >= 50 - 5 - 3
        harness.end_input()
        assert harness.rows() == [(2 * n,) for n in range(50)]


def test_time_passes_at_the_end_even_if_no_clock_shows_it() -> None:
    retry = AsyncRetryStrategy.fixed_delay(3, 5)
    with OperatorHarness(factory("Flaky", 2, retry=retry), schema=N) as harness:
        run(harness, 1)
        assert harness.rows() == [(3,)]
    step = Step("GatedWithTimeout", timeout_ms=20)
    step.push(1)
    step.harness.end_input()
    assert step.harness.rows() == [(-1,)]
    step.harness.close()
