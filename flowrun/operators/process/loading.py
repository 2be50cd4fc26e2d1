"""Users' process functions: from `module:Class` and its arguments to a checked function."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

from flowrun.api.annotated_values import as_annotated
from flowrun.api.annotations import bare, row_fields
from flowrun.api.keyed_state import StateDeclaration, declared_states
from flowrun.api.process_function import RichFunction
from flowrun.api.signatures import signature_of
from flowrun.api.state import StateDescriptor
from flowrun.core.record import record
from flowrun.errors import PipelineError, near_matches
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.function_kinds import KINDS, Call, FunctionInputs, FunctionKind, base_names, kind_of
from flowrun.operators.user_classes import Wanted, check_call, made_of

TIMERS = "timers"
PROGRESS = "progress"
_RESERVED = (TIMERS, PROGRESS)
_WANTED = Wanted(
    "a process function",
    "name a class that extends flowrun.api.process_function.KeyedProcessFunction (or ProcessFunction)",
)
_TIMER_METHODS = ("on_timer", "on_timers")
_METHODS = ("open", "close", *_TIMER_METHODS)


@record
class LoadedFunction:
    """A function that keeps to the rules.

    Attributes:
        batches: it works on batches; else on rows.
        timers: it has `on_timer` or `on_timers`.
        states: attribute → declaration.
        methods: names of its methods for rows or batches, one an input.
        calls: these methods, as they are called.
    """

    function: RichFunction
    batches: bool
    timers: bool
    states: Mapping[str, StateDeclaration]
    methods: tuple[str, ...]
    calls: tuple[Call, ...]

    @property
    def broadcast_states(self) -> Mapping[str, StateDescriptor]:
        """The broadcast states that it declares, by name."""
        found = [d.descriptor(a) for a, d in self.states.items() if d.is_broadcast]
        return {descriptor.name: descriptor for descriptor in found}


def load_process_function(
    recipe: FunctionRecipe, *, keyed: bool, inputs: FunctionInputs = FunctionInputs.ONE
) -> LoadedFunction:
    """A new function.

    Args:
        recipe: of the function.
        keyed: whether its input has keys.
        inputs: what it is to read.

    Raises:
        PipelineError: it cannot be found or made, or does not keep to the rules; the diagnostic has no location.
    """
    reference = recipe.reference
    function = made_of(recipe.load(), recipe, RichFunction, _WANTED)
    kind = _kind(type(function), reference, inputs)
    _check_keys(type(function), kind, reference, keyed)
    batches = _form(type(function), kind, reference)
    methods = kind.batches if batches else kind.rows
    for name, parameters in _signatures(kind, batches).items():
        if hasattr(function, name):
            check_call(function, name, parameters, reference)
    timers = _check_timers(type(function), kind, reference, batches)
    states = declared_states(function)
    _check_states(states, reference, keyed, inputs)
    calls = kind.calls(function, batches=batches)
    if not batches:
        calls = tuple(_with_records(c, getattr(function, m)) for c, m in zip(calls, methods, strict=True))
    return LoadedFunction(function, batches, timers, states, methods, calls)


def broadcast_states(recipe: FunctionRecipe, *, keyed: bool) -> Mapping[str, StateDescriptor]:
    """The broadcast states that a function declares, by name.

    Raises:
        PipelineError: as `load_process_function`.
    """
    return load_process_function(recipe, keyed=keyed, inputs=FunctionInputs.BROADCAST).broadcast_states


def _kind(made: type[RichFunction], reference: str, inputs: FunctionInputs) -> FunctionKind:
    kind = kind_of(made)
    if kind is None:
        raise PipelineError.of(
            f"'{reference}' is no process function: it extends RichFunction only",
            f"let {made.__name__} extend {base_names(inputs)}",
        )
    if kind.inputs is not inputs:
        extend = f"let {made.__name__} extend {base_names(inputs)}"
        hints = {
            FunctionInputs.ONE: extend,
            FunctionInputs.TWO: f"connect it with its second stream, or {extend}"
            if inputs is FunctionInputs.ONE
            else extend,
            FunctionInputs.BROADCAST: "connect the stream with other.broadcast('name of the state'), in YAML add broadcast: other",
        }
        raise PipelineError.of(
            f"'{reference}' is a {kind.base.__name__}, a function of {kind.inputs.value}, but it is given {inputs.value}",
            hints[kind.inputs],
        )
    return kind


def _check_keys(made: type[RichFunction], kind: FunctionKind, reference: str, keyed: bool) -> None:
    if keyed and kind.keyed is False:
        wanted = next(k.base.__name__ for k in KINDS if k.inputs is kind.inputs and k.keyed)
        hint = f"let {made.__name__} extend {wanted}, or remove the keys"
        raise PipelineError.of(f"'{reference}' has keys, but is no {wanted}", hint)
    if not keyed and kind.keyed:
        raise PipelineError.of(
            f"'{reference}' is a {kind.base.__name__}, but its input has no keys",
            "add key_by" if kind.inputs is not FunctionInputs.TWO else "add key_by, for both streams",
        )


def _signatures(kind: FunctionKind, batches: bool) -> Mapping[str, tuple[str, ...]]:
    """The parameters of each method that a function may have."""
    given = "batch" if batches else "row"
    parameters = (given, "context") if kind.has_context else (given,)
    return {
        **dict.fromkeys(kind.batches if batches else kind.rows, parameters),
        "on_timer": ("timestamp", "context"),
        "on_timers": ("timestamps", "context"),
        "open": ("context",),
        "close": (),
    }


def _check_timers(made: type[RichFunction], kind: FunctionKind, reference: str, batches: bool) -> bool:
    """Whether the function has timers."""
    row, batch = _TIMER_METHODS
    timers, other = (batch, row) if batches else (row, batch)
    if hasattr(made, other) and kind.has_context:
        form = (kind.batches if batches else kind.rows)[0]
        raise PipelineError.of(f"'{reference}' has {form} and {other}", f"beside {form} the method is {timers}")
    present = next((name for name in (timers, other) if hasattr(made, name)), None)
    if present is not None and kind.keyed is None:
        raise PipelineError.of(
            f"'{reference}' has {present}, but a {kind.base.__name__} has no timers", "extend KeyedCoProcessFunction"
        )
    if present is not None and not kind.keyed:
        raise PipelineError.of(f"'{reference}' has {present}, but no keys: timers belong to a key", "add key_by")
    return present is not None


def _form(made: type[RichFunction], kind: FunctionKind, reference: str) -> bool:
    """Whether the function works on batches. It has the methods of one form, for all inputs."""
    rows, batches = ([name for name in names if hasattr(made, name)] for names in (kind.rows, kind.batches))
    if rows and batches:
        raise PipelineError.of(f"'{reference}' has both {rows[0]} and {batches[0]}", "remove one of them")
    if not rows and not batches:
        row, batch = kind.rows[0], kind.batches[0]
        known = (*kind.rows, *kind.batches, *_METHODS)
        own = [n for n in dir(made) if not n.startswith("_") and n not in known]
        near = [n for n in own if near_matches(n, (*kind.rows, *kind.batches))]
        context = ", context" if kind.has_context else ""
        raise PipelineError.of(
            f"'{reference}' has neither {row} nor {batch}",
            f"rename '{near[0]}'" if near else f"add {batch}(self, batch{context}) or {row}(self, row{context})",
        )
    wanted = kind.batches if batches else kind.rows
    missing = next((name for name in wanted if not hasattr(made, name)), None)
    if missing is not None:
        present = (batches or rows)[0]
        raise PipelineError.of(
            f"'{reference}' has {present}, but no {missing}", f"add {missing}: every input has a method of its own"
        )
    return bool(batches)


def _with_records(call: Call, method: Callable[..., Any]) -> Call:
    """A method for rows as it is annotated: its first parameter may be a dataclass or `NamedTuple` instead of a dict."""
    given = signature_of(method).parameters[:1]
    kind = bare(given[0].annotation) if given else None
    if row_fields(kind) is None or typing.is_typeddict(kind):
        return call
    record_of = as_annotated(kind)
    assert record_of is not None
    return lambda row, context: call(record_of(row), context)


def _check_states(states: Mapping[str, StateDeclaration], reference: str, keyed: bool, inputs: FunctionInputs) -> None:
    names: dict[str, str] = {}
    for attribute, declaration in states.items():
        name = declaration.descriptor(attribute).name
        if not keyed and declaration.redistribution is None:
            raise PipelineError.of(
                f"'{reference}' declares the state '{name}' of a key, but its input has no keys",
                "add key_by, or declare operator_state",
            )
        if declaration.is_broadcast and inputs is not FunctionInputs.BROADCAST:
            raise PipelineError.of(
                f"'{reference}' declares the broadcast state '{name}', but reads no broadcast stream",
                f"extend {base_names(FunctionInputs.BROADCAST)}, or declare map_state",
            )
        if name in _RESERVED or not name:
            raise PipelineError.of(f"'{reference}': a state cannot be called '{name}'", "choose another name")
        if name in names:
            raise PipelineError.of(
                f"'{reference}' declares two states called '{name}', as {names[name]} and {attribute}",
                "names of states are unique",
            )
        names[name] = attribute
