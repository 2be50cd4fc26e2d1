"""Whether a users' function can be called as scalar, table and aggregate functions are: without waiting, with arguments by position."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

NOT_ASYNC = "write def, not async def; an AsyncFunction (flowrun.api.async_function) has many questions under way"
"""What to do about a function that is asynchronous."""


def is_asynchronous(called: object) -> bool:
    """Whether a call gives what has to be waited for: of an `async def`, or an object whose `__call__` is one."""
    functions = (called, getattr(called, "__call__", None))  # noqa: B004 - the method itself is looked at
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in functions)


def why_not_called(called: Callable[..., Any], *, gives_rows: bool) -> tuple[str, str] | None:
    """Why a function cannot be called with a value an argument, and what to do; None: it can.

    Args:
        called: a function, or a method of a class or an object.
        gives_rows: whether rows are expected of it, which it may yield; else it is one value.

    >>> async def ask(key: str) -> str: ...
    >>> why_not_called(ask, gives_rows=False)[0]
    'ask is asynchronous, and nothing waits for what it gives'
    >>> why_not_called(lambda n, *, unit: n, gives_rows=False)[0]
    "<lambda> takes 'unit' by name only, and arguments go by position"
    """
    name = getattr(called, "__name__", type(called).__name__)
    if is_asynchronous(called):
        return f"{name} is asynchronous, and nothing waits for what it gives", NOT_ASYNC
    if inspect.isgeneratorfunction(called) and not gives_rows:
        return (
            f"{name} yields, and one value is expected of it",
            "return the value, or declare a table function: @flowrun.udtf",
        )
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # built-in functions may have no signature
        return None
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            hint = "leave out the * before it, or give it a default"
            return f"{name} takes '{parameter.name}' by name only, and arguments go by position", hint
    return None
