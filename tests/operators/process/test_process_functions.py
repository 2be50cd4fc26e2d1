"""Process functions in one subtask: calls, outputs, event time, timers, and errors that name the row."""

from __future__ import annotations

import pytest

from flowrun.api.operator import OutputTag
from flowrun.api.process_function import ProcessFunction
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import DataError, PipelineError
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import ProcessFunctionFactory
from flowrun.testing import OperatorHarness
from flowrun.testing.output import SideBatch
from tests.operators.process.functions import Lifecycle
from tests.operators.stored import stored, taken

ROWS = Schema.of(k=STRING, n=BIGINT)
ODD = OutputTag("odd", Schema.of(n=BIGINT))


def factory_of(name: str, keys: tuple[int, ...] | None = (0,), **more: object) -> ProcessFunctionFactory:
    arguments = more.pop("arguments", {})
    recipe = FunctionRecipe(f"tests.operators.process.functions:{name}", arguments)  # type: ignore[arg-type]
    return ProcessFunctionFactory(recipe, ROWS, ROWS, keys, name="s", **more)  # type: ignore[arg-type]


def run(name: str, keys: tuple[int, ...] | None = (0,), **more: object) -> OperatorHarness:
    return OperatorHarness(factory_of(name, keys, **more), schema=ROWS)


@pytest.mark.parametrize("name", ["Counter", "BatchCounter"])
def test_state_belongs_to_the_key(name: str) -> None:
    with run(name) as harness:
        harness.push({"k": ["a", "b", "a", None], "n": [0] * 4})
        harness.push({"k": ["a", None], "n": [0] * 2})
        assert sorted(harness.rows(), key=str) == sorted(
            [("a", 1), ("b", 1), ("a", 2), (None, 1), ("a", 3), (None, 2)], key=str
        )


def test_state_and_rows_are_what_annotations_say() -> None:
    with run("Typed") as harness:
        harness.push({"k": ["a", "b"], "n": [5, 6]})
        with OperatorHarness.restore(factory_of("Typed"), [stored(taken(harness))]) as again:
            again.push({"k": ["a", "a"], "n": [7, 8]})
            assert sorted(again.rows(), key=str) == [("a", 2), ("a", 3), ("a", 502), ("a", 703)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Untyped", r"the state 'seen' of Untyped has no type"),
        ("WronglyTyped", r"the state 'seen' of WronglyTyped is annotated complex, which has no SQL type"),
    ],
)
def test_state_without_a_type_is_one_error(name: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        factory_of(name).state_schemas()


def test_the_life_of_a_function() -> None:
    Lifecycle.calls.clear()
    harness = run("Lifecycle")
    harness.push({"k": ["a"], "n": [0]})
    harness.end_input()
    harness.close()
    harness.close()
    assert Lifecycle.calls == ["open 0/1 True", "row a", "close"]


@pytest.mark.parametrize("name", ["Router", "BatchRouter"])
@pytest.mark.parametrize("times", [None, [10, 20, 30]])
def test_functions_without_keys_route_rows(name: str, times: list[int] | None) -> None:
    harness = run(name, None, side_outputs=(ODD,))
    harness.push({"k": ["a", "b", "c"], "n": [1, 2, 3]}, times)
    assert harness.rows() == [("b", 2)]
    assert harness.side_rows("odd") == [(1,), (3,)]
    assert harness.timestamps() == [None if times is None else 20]
    sides = [e.batch.timestamps for e in harness.elements if isinstance(e, SideBatch)]
    assert [None if t is None else t.to_pylist() for t in sides] == [None if times is None else [11, 31]]


@pytest.mark.parametrize("name", ["Alarm", "BatchAlarm"])
def test_timers_fire_in_both_times_before_the_watermark_goes_on(name: str) -> None:
    harness = run(name)
    harness.push({"k": ["a", "b"], "n": [50, 20]}, [100, 100])
    harness.watermark(119)
    assert harness.rows() == []
    harness.watermark(130)
    assert harness.log()[-2:] == [("b", 120), harness.log()[-1]]
    assert harness.watermarks() == [119, 130]
    harness.clear()
    harness.advance_processing_time(30)
    assert harness.rows() == [("b", 20)]
    assert harness.timestamps() == [100], "event time of the newest row"
    harness.clear()
    harness.end_input()
    assert harness.rows() == [("a", 150), ("a", 50)], "event time ends, then processing time"
    assert harness.timestamps() == [150, 100]
    assert harness.watermarks() == [MAX_TIMESTAMP]


@pytest.mark.parametrize("name", ["Alarm", "BatchAlarm"])
def test_without_event_time_rows_of_timers_have_none(name: str) -> None:
    harness = run(name)
    harness.push({"k": ["a"], "n": [5]})
    harness.advance_processing_time(5)
    assert harness.rows() == [("a", 5)]
    assert harness.timestamps() == [None]


@pytest.mark.parametrize("name", ["Alarm", "BatchAlarm"])
def test_a_closed_function_waits_for_nothing(name: str) -> None:
    harness = run(name)
    harness.push({"k": ["a"], "n": [5]})
    assert harness.processing_time.pending == (5,)
    harness.close()
    assert harness.processing_time.pending == ()


@pytest.mark.parametrize("name", ["Counter", "BatchCounter"])
def test_null_keys_go_as_the_policy_says(name: str) -> None:
    harness = run(name, null_keys=NullKeys.DROP)
    harness.push({"k": ["a", None], "n": [0, 0]})
    assert harness.rows() == [("a", 1)]
    assert harness.metrics.count("numNullKeyRecordsDropped") == 1
    with pytest.raises(DataError, match="key column 'k' is NULL in row 1"):
        run(name, null_keys=NullKeys.FAIL).push({"k": ["a", None], "n": [0, 0]})


ANSWERS = [
    ("Chatty", 5, "must return nothing, a row .a dict. or an iterable of rows, got int"),
    ("Chatty", [None], "must give rows as dicts, dataclasses or NamedTuples, got nothing"),
    ("Chatty", {"k": "a"}, "without the column 'n'"),
    ("Chatty", [{"k": "a", "n": 1, "m": 2}], "with the undeclared column 'm'"),
    ("Chatty", {"k": "a", "n": "x"}, "column 'n' is BIGINT, got 'x' of type str"),
    ("BatchChatty", "5", "must give rows as a pa.RecordBatch, or with parents .* got int"),
    ("BatchChatty", "pa.record_batch({'k': ['a', 'b']})", "without the column 'n'"),
    ("BatchChatty", "batch.slice(0, 1)", "got 2 rows and sent 1 without saying which rows they came from"),
    ("BatchChatty", "(batch, [0])", "parents: got 1 values, expected 2"),
    ("BatchChatty", "(batch, [0, 2])", "parents must be positions from 0 to 1"),
]


@pytest.mark.parametrize(("name", "value", "message"), ANSWERS)
def test_wrong_answers(name: str, value: object, message: str) -> None:
    harness = run(name, arguments={"value": value})
    with pytest.raises(DataError, match=f"function 'tests.*:{name}' of 's' {message}|{message}") as caught:
        harness.push({"k": ["a", "b"], "n": [1, 2]}, [1, 2])
    assert caught.value.__cause__ is not caught.value


def test_a_failing_function_names_row_and_line() -> None:
    with pytest.raises(
        DataError, match=r"process_element raised ZeroDivisionError: .* at .*functions.py:\d+; the row is"
    ) as caught:
        run("Raising").push({"k": ["a", "b"], "n": [1, 0]})
    assert caught.value.row == 1
    with pytest.raises(
        DataError, match=r"process_batch raised ValueError: no at .*functions.py:\d+; the batch has 1 rows"
    ):
        run("BatchRaising").push({"k": ["a"], "n": [1]})


STORED = [
    ("Storing", "text", "state 'number' is BIGINT, got 'five' of type str"),
    ("Storing", "float", "state 'number' is BIGINT, got 5.0 of type float"),
    ("Storing", "big", "state 'short' is TINYINT, got 128 of type int"),
    ("Storing", "digits", r"state 'price' is DECIMAL\(5, 2\), got Decimal"),
    ("Storing", "element", "state 'names' is STRING, got 3 of type int"),
    ("Storing", "key", "state 'pairs' is STRING, got 3 of type int"),
    ("Storing", "null key", "state 'pairs' is STRING, got None of type NoneType"),
    ("Storing", "timer", "a timer needs on_timer"),
    ("BatchStoring", "text", "state 'number'.*is BIGINT, got 'five' of type str"),
    ("BatchStoring", "too few", "state 'number': got 0 values, expected 1"),
    ("BatchStoring", "floats", "state 'number'.*values that do not fit"),
    ("BatchStoring", "scalar", "takes an Arrow array, a NumPy array or a list, got int"),
    ("BatchStoring", "position", "position 1 is none of the batch's 1 keys"),
    ("BatchStoring", "mask", "1 booleans or by integer positions, got float64"),
    ("BatchStoring", "numpy", "state 'names' is STRING, which NumPy has no arrays for"),
    ("BatchStoring", "null key", "state 'pairs': a map key is NULL"),
    ("BatchStoring", "timer", "timers need on_timers"),
]


@pytest.mark.parametrize(("name", "what", "message"), STORED)
def test_values_that_are_not_of_the_declared_type(name: str, what: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(name, arguments={"what": what}).push({"k": ["a"], "n": [1]})


def test_an_unknown_side_output_has_near_matches() -> None:
    other = OutputTag("old", Schema.of(n=BIGINT))
    for name in ("Router", "BatchRouter"):
        with pytest.raises(DataError, match=r"has no side output 'odd'.*\n.*did you mean 'old'"):
            run(name, None, side_outputs=(other,)).push({"k": ["a"], "n": [1]})


def test_an_event_time_for_a_stream_without() -> None:
    class Late(ProcessFunction):
        def process_element(self, row, context):  # type: ignore[no-untyped-def]
            context.collect(row, 5)

    from flowrun.operators.process.loading import LoadedFunction
    from flowrun.operators.process.operator import ProcessInput, ProcessSettings
    from flowrun.operators.process.rows import RowProcessOperator

    late = Late()
    loaded = LoadedFunction(late, False, False, {}, ("process_element",), (late.process_element,))
    operator = RowProcessOperator(ProcessSettings(loaded, "f", (ProcessInput(ROWS),), ROWS, {}, NullKeys.GROUP, None))
    with pytest.raises(DataError, match="gave a row the event time 5, but the stream has no event time"):
        OperatorHarness(operator, schema=ROWS).push({"k": ["a"], "n": [1]})
