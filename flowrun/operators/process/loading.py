"""Users' process functions: from `module:Class` and its arguments to a checked function."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.api.keyed_state import StateDeclaration, declared_states
from flowrun.api.process_function import KeyedProcessFunction, ProcessFunction
from flowrun.core.record import record
from flowrun.errors import PipelineError, near_matches
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.user_classes import Wanted, check_call, made_of

TIMERS = "timers"
PROGRESS = "progress"
_RESERVED = (TIMERS, PROGRESS)
_WANTED = Wanted(
    "a process function",
    "name a class that extends flowrun.api.process_function.KeyedProcessFunction (or ProcessFunction)",
)
_CALLS = {
    "process_element": ("row", "context"),
    "process_batch": ("batch", "context"),
    "on_timer": ("timestamp", "context"),
    "on_timers": ("timestamps", "context"),
    "open": ("context",),
    "close": (),
}


@record
class LoadedFunction:
    """A function that keeps to the rules.

    Attributes:
        batches: it works on batches; else on rows.
        timers: it has `on_timer` or `on_timers`.
        states: attribute → declaration.
    """

    function: ProcessFunction
    batches: bool
    timers: bool
    states: Mapping[str, StateDeclaration]


def load_process_function(recipe: FunctionRecipe, *, keyed: bool) -> LoadedFunction:
    """A new function.

    Args:
        recipe: of the function.
        keyed: whether its input has keys.

    Raises:
        PipelineError: it cannot be found or made, or does not keep to the rules; the diagnostic has no location.
    """
    reference = recipe.reference
    found = recipe.load()
    function = made_of(found, recipe, ProcessFunction, _WANTED)
    kind = type(function)
    if keyed and not isinstance(function, KeyedProcessFunction):
        hint = f"let {kind.__name__} extend KeyedProcessFunction, or remove the keys"
        raise PipelineError.of(f"'{reference}' has keys, but is no KeyedProcessFunction", hint)
    if not keyed and isinstance(function, KeyedProcessFunction):
        raise PipelineError.of(f"'{reference}' is a KeyedProcessFunction, but its input has no keys", "add key_by")
    batches = _form(kind, reference)
    for name, parameters in _CALLS.items():
        if hasattr(kind, name):
            check_call(function, name, parameters, reference)
    timers = "on_timers" if batches else "on_timer"
    other = "on_timer" if batches else "on_timers"
    if hasattr(kind, other):
        form = "process_batch" if batches else "process_element"
        raise PipelineError.of(f"'{reference}' has {form} and {other}", f"beside {form} the method is {timers}")
    if not keyed and hasattr(kind, timers):
        raise PipelineError.of(f"'{reference}' has {timers}, but no keys: timers belong to a key", "add key_by")
    states = declared_states(function)
    _check_states(states, reference, keyed)
    return LoadedFunction(function, batches, hasattr(kind, timers), states)


def _form(kind: type, reference: str) -> bool:
    """Whether the function works on batches."""
    rows, batches = hasattr(kind, "process_element"), hasattr(kind, "process_batch")
    if rows and batches:
        raise PipelineError.of(f"'{reference}' has both process_element and process_batch", "remove one of them")
    if not rows and not batches:
        own = [n for n in dir(kind) if not n.startswith("_") and n not in _CALLS]
        near = [n for n in own if near_matches(n, ("process_element", "process_batch"))]
        raise PipelineError.of(
            f"'{reference}' has neither process_element nor process_batch",
            f"rename '{near[0]}'"
            if near
            else "add process_batch(self, batch, context) or process_element(self, row, context)",
        )
    return batches


def _check_states(states: Mapping[str, StateDeclaration], reference: str, keyed: bool) -> None:
    names: dict[str, str] = {}
    for attribute, declaration in states.items():
        name = declaration.descriptor(attribute).name
        if not keyed and declaration.redistribution is None:
            raise PipelineError.of(
                f"'{reference}' declares the state '{name}' of a key, but its input has no keys",
                "add key_by, or declare operator_state",
            )
        if name in _RESERVED or not name:
            raise PipelineError.of(f"'{reference}': a state cannot be called '{name}'", "choose another name")
        if name in names:
            raise PipelineError.of(
                f"'{reference}' declares two states called '{name}', as {names[name]} and {attribute}",
                "names of states are unique",
            )
        names[name] = attribute
