"""Users' classes: from what a recipe names to an object that keeps to the rules, with errors that say what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flowrun.core.record import record
from flowrun.errors import FlowrunError, PipelineError, did_you_mean
from flowrun.operators.function_loading import describe, where
from flowrun.operators.function_recipe import FunctionRecipe

T = TypeVar("T")


@record
class Wanted:
    """What a class should be: how messages call it, and what to do if it is something else."""

    what: str
    hint: str


def made_of(found: Any, recipe: FunctionRecipe, base: type[T], wanted: Wanted) -> T:
    """What a recipe gave, if that is an instance of `base`, or an instance of the class that it gave, made with the recipe's arguments.

    Raises:
        PipelineError: it is no such class, or making it failed; the diagnostic has no location.
    """
    if isinstance(found, base):
        return found
    kind = found
    if not inspect.isclass(kind) or not issubclass(kind, base):
        what = f"the class {kind.__name__}" if inspect.isclass(kind) else f"an object of type {type(kind).__name__}"
        raise PipelineError.of(f"'{recipe.reference}' is {what}, not {wanted.what}", wanted.hint)
    made: Callable[..., T] = kind
    signature = inspect.signature(made)
    try:
        signature.bind(**recipe.arguments)
    except TypeError as error:
        known = [p.name for p in signature.parameters.values()]
        wrong = next((a for a in recipe.arguments if a not in known), None)
        hint = did_you_mean(wrong, known) if wrong is not None and known else None
        raise PipelineError.of(
            f"'{recipe.reference}' does not take these arguments: {error}; its signature is {kind.__name__}{signature}",
            hint or "give the arguments in with: {name: value}",
        ) from error
    try:
        return made(**recipe.arguments)
    except FlowrunError as error:
        raise PipelineError.of(f"'{recipe.reference}': {error.message}", error.hint) from error
    except Exception as error:
        raise PipelineError.of(
            f"'{recipe.reference}': {kind.__name__}(…) failed: {describe(error)}{where(error, __file__)}",
            "functions are made when the pipeline is checked, too; acquire resources in open()",
        ) from error


def check_call(function: object, name: str, parameters: Sequence[str], reference: str) -> None:
    """Raise PipelineError unless a method can be called with so many arguments."""
    method = getattr(function, name)
    if not callable(method):
        raise PipelineError.of(f"'{reference}': '{name}' is no method", f"define {name}(self, {', '.join(parameters)})")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise PipelineError.of(f"'{reference}': '{name}' is asynchronous", "make it an ordinary method")
    signature = inspect.signature(method)
    try:
        signature.bind(*parameters)
    except TypeError as error:
        wanted = ", ".join(("self", *parameters))
        raise PipelineError.of(
            f"'{reference}': {name}{signature} cannot be called with ({', '.join(parameters)}): {error}",
            f"write def {name}({wanted})",
        ) from error
