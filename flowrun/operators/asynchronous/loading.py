"""Users' asynchronous functions: from their recipe to a checked function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flowrun.api.async_function import AsyncFunction
from flowrun.core.record import record
from flowrun.errors import PipelineError, near_matches
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.user_classes import Wanted, made_of

_ROW, _BATCH = "async_invoke", "async_invoke_batch"
_WANTED = Wanted("an asynchronous function", "name a class that extends flowrun.api.async_function.AsyncFunction")


@record
class LoadedAsyncFunction:
    """A function that keeps to the rules.

    Attributes:
        batches: it works on batches; else on rows.
        invoke: its method for a row or batch, called with that and a context.
        timeout: its method for those whose time is up, called alike; None: that is an error.
    """

    function: AsyncFunction
    batches: bool
    invoke: Callable[[Any, Any], Any]
    timeout: Callable[[Any, Any], Any] | None


def load_async_function(recipe: FunctionRecipe) -> LoadedAsyncFunction:
    """A new function.

    Raises:
        PipelineError: it cannot be found or made, or does not keep to the rules; the diagnostic has no location.
    """
    reference = recipe.reference
    function = made_of(recipe.load(), recipe, AsyncFunction, _WANTED)
    kind = type(function)
    rows, batches = hasattr(kind, _ROW), hasattr(kind, _BATCH)
    if rows and batches:
        raise PipelineError.of(f"'{reference}' has both {_ROW} and {_BATCH}", "remove one of them")
    if not rows and not batches:
        near = [n for n in vars(kind) if near_matches(n, (_ROW, _BATCH))]
        raise PipelineError.of(
            f"'{reference}' has neither {_ROW} nor {_BATCH}",
            f"rename '{near[0]}'" if near else f"add: async def {_ROW}(self, row, context)",
        )
    name, subject = (_BATCH, "batch") if batches else (_ROW, "row")
    invoke = getattr(function, name)
    if not (inspect.iscoroutinefunction(invoke) or inspect.isasyncgenfunction(invoke)):
        raise PipelineError.of(
            f"'{reference}': '{name}' is not asynchronous", f"write: async def {name}(self, {subject}, context)"
        )
    late: Any = function
    timeout = late.timeout if hasattr(kind, "timeout") else None  # an object may keep a number under this name
    return LoadedAsyncFunction(
        function,
        batches,
        _with_context(invoke, name, subject, reference),
        None if timeout is None else _with_context(timeout, "timeout", subject, reference),
    )


def _with_context(method: Any, name: str, subject: str, reference: str) -> Callable[[Any, Any], Any]:
    """The method, called with what it is for and the context; it may do without the context."""
    if not callable(method):
        raise PipelineError.of(f"'{reference}': '{name}' is no method", f"define {name}(self, {subject}, context)")
    signature = inspect.signature(method)
    try:
        signature.bind(subject, "context")
    except TypeError as error:
        try:
            signature.bind(subject)
        except TypeError:
            raise PipelineError.of(
                f"'{reference}': {name}{signature} cannot be called with ({subject}, context): {error}",
                f"write: {'' if name == 'timeout' else 'async '}def {name}(self, {subject}, context)",
            ) from error
        return lambda given, _context: method(given)
    called: Callable[[Any, Any], Any] = method
    return called
