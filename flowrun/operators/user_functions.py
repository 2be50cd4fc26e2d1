"""Users' SQL functions as objects that can be called: scalar and table functions, and aggregates.

Of a class an instance is made, without arguments, once a subtask. It may have `open()` and `close()`, or be a context manager, whose
`__enter__` then gives what is called: resources are acquired when a subtask begins, and released when it ends, also after a failure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from flowrun.api.user_functions import Aggregate
from flowrun.errors import PipelineError
from flowrun.operators.function_loading import load_attribute
from flowrun.operators.opened_functions import made_of_class, present_functions

_METHODS = ("create_accumulator", "accumulate", "get_value")


def load_callable(reference: str, search_path: Sequence[str] = ()) -> Callable[..., Any]:
    """The scalar or table function that `reference` (`module:name`) names, opened, to be called with one value an argument.

    It names a function, or a class or instance with `__call__` or `eval`.

    Raises:
        PipelineError: there is none, or it cannot be made.
        DataError: it cannot be opened.
    """
    target = present_functions().instance(reference, search_path)
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
    """The aggregate that `reference` names: an instance of the class, opened.

    Raises:
        PipelineError: there is none, it cannot be made, or it lacks a method.
        DataError: it cannot be opened.
    """
    return _as_aggregate(present_functions().instance(reference, search_path), reference)


def made_aggregate(reference: str, search_path: Sequence[str] = ()) -> Aggregate:
    """The aggregate, made to be looked at: it is not opened.

    Raises:
        PipelineError: as `load_aggregate`.
    """
    target = load_attribute(reference, search_path)
    if inspect.isclass(target):
        target = made_of_class(target, reference)
    return _as_aggregate(target, reference)


def can_retract(aggregate: Aggregate) -> bool:
    """Whether the aggregate can take rows back: it has a method `retract` like `accumulate`."""
    return callable(getattr(aggregate, "retract", None))


def _as_aggregate(target: Any, reference: str) -> Aggregate:
    missing = [m for m in _METHODS if not callable(getattr(target, m, None))]
    if missing:
        raise PipelineError.of(
            f"'{reference}' has no method {', '.join(missing)}",
            "an aggregate is a class with create_accumulator(), accumulate(accumulator, …) and get_value(accumulator)",
        )
    return target  # type: ignore[no-any-return]
