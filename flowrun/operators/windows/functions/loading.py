"""Users' window functions: from a recipe to a checked function, and the state tables that it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from flowrun.api.keyed_state import StateDeclaration, declared_states
from flowrun.api.window_function import ProcessWindowFunction, WindowStateDeclaration
from flowrun.core.record import record
from flowrun.core.schema import Field
from flowrun.core.types import BIGINT
from flowrun.errors import PipelineError
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import key_columns
from flowrun.operators.user_classes import Wanted, check_call, made_of
from flowrun.state.backend.tables import state_table

BOUNDS = ("window_start", "window_end")

_WANTED = Wanted("a window function", "name a class that extends flowrun.api.window_function.ProcessWindowFunction")
_CALLS = {
    "process": ("key", "context", "rows"),
    "process_batch": ("windows", "rows", "context"),
    "clear": ("context",),
    "clear_batch": ("windows", "context"),
    "open": ("context",),
    "close": (),
}
_RESERVED = ("windows", "rows", "timers", "progress", "results")


@record
class LoadedWindowFunction:
    """A function that keeps to the rules.

    Attributes:
        batches: it works on all windows that fire together; else on each.
        clears: it is told of windows that are forgotten.
        states: attribute → declaration.
    """

    function: ProcessWindowFunction
    batches: bool
    clears: bool
    states: Mapping[str, StateDeclaration]

    @property
    def window_states(self) -> Mapping[str, StateDeclaration]:
        """Those of windows."""
        return {a: d for a, d in self.states.items() if isinstance(d, WindowStateDeclaration)}

    @property
    def global_states(self) -> Mapping[str, StateDeclaration]:
        """Those of keys."""
        return {a: d for a, d in self.states.items() if not isinstance(d, WindowStateDeclaration)}


def load_window_function(recipe: FunctionRecipe, *, merging: bool) -> LoadedWindowFunction:
    """A new function.

    Args:
        recipe: of the function.
        merging: whether its windows merge.

    Raises:
        PipelineError: it cannot be found or made, or does not keep to the rules; the diagnostic has no location.
    """
    reference = recipe.reference
    function = made_of(recipe.load(), recipe, ProcessWindowFunction, _WANTED)
    rows, batches = hasattr(function, "process"), hasattr(function, "process_batch")
    if rows == batches:
        has = "both process and process_batch" if rows else "neither process nor process_batch"
        hint = "remove one of them" if rows else "add process(self, key, context, rows)"
        raise PipelineError.of(f"'{reference}' has {has}", hint)
    for name, parameters in _CALLS.items():
        if hasattr(function, name):
            check_call(function, name, parameters, reference)
    clear, other = ("clear_batch", "clear") if batches else ("clear", "clear_batch")
    if hasattr(function, other):
        form = "process_batch" if batches else "process"
        raise PipelineError.of(f"'{reference}' has {form} and {other}", f"beside {form} the method is {clear}")
    states = declared_states(function)
    _check_states(states, reference, merging)
    return LoadedWindowFunction(function, batches, hasattr(function, clear), states)


def _check_states(states: Mapping[str, StateDeclaration], reference: str, merging: bool) -> None:
    names: dict[str, str] = {}
    for attribute, declaration in states.items():
        name = declaration.descriptor(attribute).name
        if declaration.redistribution is not None:
            raise PipelineError.of(
                f"'{reference}' declares the operator state '{name}', but state of window functions belongs to keys and windows",
                "declare it without operator_state",
            )
        if merging and isinstance(declaration, WindowStateDeclaration):
            raise PipelineError.of(
                f"'{reference}' declares the state '{name}' of a window, but its windows merge",
                "declare state of the key: without window_state",
            )
        if name in _RESERVED or not name:
            raise PipelineError.of(f"'{reference}': a state cannot be called '{name}'", "choose another name")
        if name in names:
            raise PipelineError.of(
                f"'{reference}' declares two states called '{name}', as {names[name]} and {attribute}",
                "names of states are unique",
            )
        names[name] = attribute


def window_fields(keys: Sequence[Field]) -> tuple[Field, ...]:
    """The columns by which state of a window is found: the key columns, then the bounds in ms, under names that no key has.

    >>> [f.name for f in window_fields([Field("window_end", BIGINT)])]
    ['window_end', 'window_start', 'window_end_']
    """
    fields = list(keys)
    for bound in BOUNDS:
        taken = {f.name for f in fields}
        fields.append(Field(next(n for i in range(len(taken) + 1) if (n := bound + "_" * i) not in taken), BIGINT))
    return tuple(fields)


def function_state_schemas(loaded: LoadedWindowFunction, keys: Sequence[Field]) -> dict[str, pa.Schema]:
    """The tables of the states that a function declares, for key columns."""
    tables = {}
    for states, fields in ((loaded.global_states, keys), (loaded.window_states, window_fields(keys))):
        columns = key_columns(fields)
        for attribute, declaration in states.items():
            descriptor = declaration.descriptor(attribute)
            tables[descriptor.name] = state_table(descriptor, columns, 1).schema
    return tables
