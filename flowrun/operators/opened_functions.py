"""The users' classes that a subtask has opened: each is made once, however many expressions call it, and closed with the subtask.

A subtask makes its functions while it runs on a thread: `enter` says whose they are. Several subtasks may take turns on one thread.
Without a subtask, as while a script is checked, a class is made whenever it is asked for, and nobody closes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from flowrun.errors import DataError, PipelineError
from flowrun.operators.function_loading import describe, load_attribute, where

_present = threading.local()


class OpenedFunctions:
    """Those of one subtask. All calls from its thread."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._opened: list[tuple[str, Callable[[], Any]]] = []

    def enter(self) -> None:
        """What this thread makes from now on is for this subtask."""
        _present.functions = self

    def instance(self, reference: str, search_path: Sequence[str]) -> Any:
        """What `reference` (`module:name`) names; of a class an object, made and opened when it is first asked for.

        Raises:
            PipelineError: there is none, or it cannot be made.
            DataError: its `open` failed.
        """
        key = (reference, tuple(search_path))
        if key not in self._made:
            target = load_attribute(reference, search_path)
            self._made[key] = (
                self._open(made_of_class(target, reference), reference) if isinstance(target, type) else target
            )
        return self._made[key]

    def _open(self, made: Any, reference: str) -> Any:
        begin, end = getattr(made, "open", None), getattr(made, "close", None)
        if not callable(begin) and not callable(end) and hasattr(made, "__enter__") and hasattr(made, "__exit__"):
            begin, end = made.__enter__, lambda: made.__exit__(None, None, None)
        if callable(end):  # before `open`, so that what it has acquired is released if it fails on its way
            self._opened.append((reference, end))
        if not callable(begin):
            return made
        try:
            entered = begin()
        except Exception as error:
            raise DataError(f"'{reference}': open failed: {describe(error)}{where(error, __file__)}") from error
        return made if getattr(made, "open", None) is not None or entered is None else entered

    def close(self) -> list[DataError]:
        """Close what was opened, the last one first, whatever the others raise; gives what they raised. Idempotent."""
        failures = []
        while self._opened:
            reference, end = self._opened.pop()
            try:
                end()
            except Exception as error:
                failure = DataError(f"'{reference}': close failed: {describe(error)}{where(error, __file__)}")
                failure.__cause__ = error
                failures.append(failure)
        self._made.clear()
        if getattr(_present, "functions", None) is self:
            del _present.functions
        return failures


def present_functions() -> OpenedFunctions:
    """Those of the subtask that runs on this thread; without one new ones, which nobody closes."""
    found: OpenedFunctions | None = getattr(_present, "functions", None)
    return OpenedFunctions() if found is None else found


def made_of_class(kind: type, reference: str) -> Any:
    """An object of a class, not opened.

    Raises:
        PipelineError: making it failed.
    """
    try:
        return kind()
    except Exception as error:
        raise PipelineError.of(
            f"'{reference}': making a {kind.__name__} failed: {describe(error)}{where(error, __file__)}",
            "the class is made without arguments, when a script is checked, too; acquire resources in open()",
        ) from error
