"""Functions that do not keep to the rules are refused when the pipeline is checked, with what to do."""

from __future__ import annotations

import pickle
import threading

import pytest

from flowrun.errors import PipelineError
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.loading import load_process_function
from tests.operators.process.functions import Chatty, Counter

MODULE = "tests.operators.process.functions"
REFUSED = [
    ("Neither", {}, "neither process_element nor process_batch", "rename 'process_elements'"),
    ("Both", {}, "both process_element and process_batch", "remove one"),
    ("Mixed", {}, "has process_element and on_timers", "the method is on_timer"),
    ("Narrow", {}, "cannot be called with .row, context.", "process_element.self, row, context."),
    ("Asynchronous", {}, "is asynchronous", "ordinary"),
    ("Twins", {}, "two states called 'count'", "unique"),
    ("Reserved", {}, "cannot be called 'timers'", "another name"),
    ("Fragile", {}, r"Fragile\(…\) failed: OSError: no connection at .*functions.py:\d+", "open()"),
    ("Chatty", {}, "missing a required argument: 'value'; its signature is Chatty.value.", "with: "),
    ("Chatty", {"valeu": 1}, "does not take these arguments", "did you mean 'value'"),
    ("not_a_class", {}, "is an object of type int, not a process function", "KeyedProcessFunction"),
    ("np", {}, "is an object of type module, not a process function", "KeyedProcessFunction"),
    ("Router", {}, "has keys, but is no KeyedProcessFunction", "extend KeyedProcessFunction"),
    ("Countre", {}, "has no 'Countre'", "did you mean 'Counter'"),
]


@pytest.mark.parametrize(("name", "arguments", "message", "hint"), REFUSED)
def test_refused_with_keys(name: str, arguments: dict[str, object], message: str, hint: str) -> None:
    with pytest.raises(PipelineError, match=message) as caught:
        load_process_function(FunctionRecipe(f"{MODULE}:{name}", arguments), keyed=True)
    assert hint.replace(".", "") in (caught.value.diagnostics[0].hint or "").replace("(", "").replace(
        ")", ""
    ) or hint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Counter", "is a KeyedProcessFunction, but its input has no keys"),
        ("UnkeyedWithState", "declares the state 'count' of a key, but its input has no keys"),
        ("UnkeyedWithTimers", "has on_timer, but no keys"),
    ],
)
def test_refused_without_keys(name: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        load_process_function(FunctionRecipe(f"{MODULE}:{name}"), keyed=False)


def test_an_object_is_copied_for_each_subtask() -> None:
    original = Chatty([1])
    recipe = pickle.loads(pickle.dumps(FunctionRecipe.of(original)))
    copies = [load_process_function(recipe, keyed=True).function for _ in range(2)]
    assert copies[0].value == [1]
    assert copies[0].value is not copies[1].value
    assert recipe.reference == f"{MODULE}:Chatty"


def test_an_object_that_cannot_be_sent() -> None:
    class Locked(Counter):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(PipelineError, match="cannot be sent to tasks"):
        FunctionRecipe.of(Locked())


def test_what_is_defined_in_a_function_goes_by_value() -> None:
    limit = 3

    class Local(Counter):
        limit_of_all = limit

    def above(row: dict[str, int]) -> bool:
        return row["n"] > limit

    for recipe in (FunctionRecipe.of(Local()), FunctionRecipe.of_code(Local)):
        loaded = load_process_function(pickle.loads(pickle.dumps(recipe)), keyed=True)
        assert vars(type(loaded.function))["limit_of_all"] == 3
    sent = pickle.loads(pickle.dumps(FunctionRecipe.of_code(above))).load_function()
    limit = 10
    assert sent is not above
    assert [sent({"n": n}) for n in (3, 4)] == [False, True]
