"""Users' SQL functions as objects that can be called: scalar and table functions, and aggregates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from flowrun.api.user_functions import Aggregate
from flowrun.errors import PipelineError
from flowrun.operators.function_loading import describe, load_attribute, where


def load_callable(reference: str, search_path: Sequence[str] = ()) -> Callable[..., Any]:
    """The scalar or table function that `reference` (`module:name`) names, to be called with one value an argument.

    It names a function, or a class or instance with `__call__` or `eval`; of a class an instance is made, without arguments. A method
    `open` without arguments is called on it.

    Raises:
        PipelineError: there is none, or it cannot be made.
    """
    target = _instance(load_attribute(reference, search_path), reference)
    evaluate = getattr(target, "eval", None)
    if not inspect.isroutine(target) and callable(evaluate):
        called: Callable[..., Any] = evaluate
        return called
    if not callable(target):
        raise PipelineError.of(
            f"'{reference}' is a {type(target).__name__}, which cannot be called",
            "name a function, or a class with the method __call__ or eval",
        )
    return target  # type: ignore[no-any-return]


def load_aggregate(reference: str, search_path: Sequence[str] = ()) -> Aggregate:
    """The aggregate that `reference` names: an instance of the class.

    Raises:
        PipelineError: there is none, it cannot be made, or it lacks a method.
    """
    target = _instance(load_attribute(reference, search_path), reference)
    missing = [m for m in ("create_accumulator", "accumulate", "get_value") if not callable(getattr(target, m, None))]
    if missing:
        raise PipelineError.of(
            f"'{reference}' has no method {', '.join(missing)}",
            "an aggregate is a class with create_accumulator(), accumulate(accumulator, …) and get_value(accumulator)",
        )
    return target  # type: ignore[no-any-return]


def can_retract(aggregate: Aggregate) -> bool:
    """Whether the aggregate can take rows back: it has a method `retract` like `accumulate`."""
    return callable(getattr(aggregate, "retract", None))


def _instance(target: Any, reference: str) -> Any:
    if not inspect.isclass(target):
        return target
    try:
        made = target()
        opens = getattr(made, "open", None)
        if callable(opens):
            opens()
    except Exception as error:
        raise PipelineError.of(
            f"'{reference}': making a {target.__name__} failed: {describe(error)}{where(error)}",
            "the class is instantiated without arguments, and its open() is called without any",
        ) from error
    return made
