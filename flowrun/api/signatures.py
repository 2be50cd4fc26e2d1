"""What the annotations of a function say of its parameters and its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from flowrun.api.annotations import AnnotationError, Form, form_of, hints_of, type_of_annotation
from flowrun.core.record import record
from flowrun.core.types import DataType


@record
class NamedAnnotation:
    """A parameter, or what a function gives.

    Attributes:
        name: of the parameter; empty: the result.
        annotation: as Python evaluates it; an `Unknown` if it cannot.
        place: `file:line` of the function; empty if it is not known.
    """

    name: str
    annotation: Any
    place: str = ""

    @property
    def form(self) -> Form:
        """Whether it is a value of one row, or a column, and in which form."""
        return form_of(self.annotation)

    @property
    def type(self) -> DataType | None:
        """The SQL type; None: it says none (nothing is annotated, `Any`, or a column without a type).

        Raises:
            AnnotationError: it says something that has no SQL type; names the parameter and the place.
        """
        try:
            return type_of_annotation(self.annotation)
        except AnnotationError as error:
            what = f"parameter '{self.name}'" if self.name else "the result"
            where = f" ({self.place})" if self.place else ""
            raise AnnotationError(f"{what} is annotated {error}{where}", error.hint) from None


@record
class Signature:
    """The annotations of a function.

    Attributes:
        parameters: those that arguments go to by position.
        result: what it gives.
        open_ended: it takes any number of arguments (`*args`).
    """

    parameters: tuple[NamedAnnotation, ...]
    result: NamedAnnotation
    open_ended: bool = False

    def argument_types(self) -> tuple[DataType, ...] | None:
        """Types of the arguments; None: one of them has none, or there is no end of them.

        Raises:
            AnnotationError: one has no SQL type.
        """
        found = [p.type for p in self.parameters]
        return None if self.open_ended or None in found else tuple(t for t in found if t is not None)

    @property
    def forms(self) -> tuple[Form, ...]:
        """What each parameter takes."""
        return tuple(p.form for p in self.parameters)

    @property
    def is_vectorised(self) -> bool:
        """Whether a parameter takes a column."""
        return any(f is not Form.VALUE for f in self.forms)


def signature_of(function: Callable[..., Any], skip: int = 0) -> Signature:
    """The annotations of a function, without the first `skip` parameters.

    >>> def f(a: str, b: int | None) -> float: ...
    >>> signature = signature_of(f)
    >>> [str(t) for t in signature.argument_types()], str(signature.result.type), signature.is_vectorised
    (['STRING', 'BIGINT'], 'DOUBLE', False)
    """
    if not isinstance(function, partial) and not inspect.isroutine(function) and not inspect.isclass(function):
        function = getattr(function, "__call__")  # noqa: B004, B009 - type checkers take it for a class
    annotated = function.func if isinstance(function, partial) else function
    place = place_of(annotated)
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):  # built-in functions may have no signature
        return Signature((), NamedAnnotation("", None, place), True)
    hints = hints_of(annotated)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return Signature(
        tuple(NamedAnnotation(p.name, hints.get(p.name), place) for p in positional),
        NamedAnnotation("", hints.get("return"), place),
        any(p.kind is p.VAR_POSITIONAL for p in parameters),
    )


def place_of(function: Any) -> str:
    """`file:line` where a function is defined; empty if that is not known."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
