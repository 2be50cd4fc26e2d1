# ruff: noqa: N807, ARG001 - methods are made here and given to classes
"""`record`: the frozen, slotted dataclass that the rest of the code is made of, made six times faster.

A run of a small pipeline makes about 450 such classes before its first row. `dataclasses` compiles seven functions for each of them,
0.4 ms a class and 0.2 s of a start of 0.5 s (Python 3.11). Here only `__init__` is compiled, and only when the first instance is made:
most classes have none in a run. Equality, hashing, representation and the guard against assignment are closures over the names of the
fields. The fields themselves are still those of `dataclasses`, so `field`, `fields`, `replace`, `KW_ONLY` and `__post_init__` work as
they do there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Class = TypeVar("Class", bound=type)

_set = object.__setattr__


@overload
def record(cls: Class, /) -> Class: ...


@overload
def record(
    *, eq: bool = True, slots: bool = True, frozen: bool = True, kw_only: bool = False
) -> Callable[[Class], Class]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(
    cls: Any = None, /, *, eq: bool = True, slots: bool = True, frozen: bool = True, kw_only: bool = False
) -> Any:
    """Make a class a frozen dataclass: `@record`, or `@record(eq=False)`, `@record(slots=False)`.

    `eq=False` keeps identity as equality and hash; `slots=False` leaves instances a dictionary, which `cached_property` needs.
    `frozen=False` lets attributes be assigned, so instances that are compared have no hash. Methods that the class itself defines are kept.

    >>> @record
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), hash(Point(1)) == hash(Point(1))
    (Point(x=1, y=0), True, True)
    >>> Point(1).x = 2
    Traceback (most recent call last):
    dataclasses.FrozenInstanceError: cannot assign to field 'x'
    """

    def make(given: type) -> type:
        if given.__doc__ is None:
            given.__doc__ = given.__name__  # else `dataclass` derives a signature, which takes longer than all the rest
        own = frozenset(vars(given))
        made: type = dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(given)
        for name, method in _methods(made, eq, frozen).items():
            if name not in own:
                if method is not None:
                    method.__qualname__ = f"{made.__qualname__}.{name}"
                setattr(made, name, method)
        return made

    return make if cls is None else make(cls)


def _methods(cls: type[DataclassInstance], eq: bool, frozen: bool) -> dict[str, Callable[..., Any] | None]:
    every = fields(cls)
    all_values = _values(f.name for f in every)

    def __repr__(self: object) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in every if f.repr)
        return f"{type(self).__qualname__}({shown})"

    def __setattr__(self: object, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field '{name}'")

    def __delattr__(self: object, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field '{name}'")

    methods: dict[str, Callable[..., Any] | None] = {"__init__": _initializer(cls, every), "__repr__": __repr__}
    if frozen:
        methods |= {"__setattr__": __setattr__, "__delattr__": __delattr__}
    if eq:
        compared = _values(f.name for f in every if f.compare)

        def __eq__(self: object, other: object) -> bool:
            return compared(self) == compared(other) if type(other) is type(self) else NotImplemented

        def __hash__(self: object) -> int:
            return hash(compared(self))

        methods |= {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}
    if "__slots__" in vars(cls):

        def __getstate__(self: object) -> tuple[Any, ...]:
            return all_values(self)

        def __setstate__(self: object, state: tuple[Any, ...]) -> None:
            for f, value in zip(every, state, strict=True):
                _set(self, f.name, value)

        methods |= {"__getstate__": __getstate__, "__setstate__": __setstate__}
    return methods


def _values(names: Any) -> Callable[[object], tuple[Any, ...]]:
    """What reads these attributes as a tuple."""
    chosen = tuple(names)
    if not chosen:
        return lambda _: ()
    get = attrgetter(*chosen)
    return get if len(chosen) > 1 else lambda instance: (get(instance),)


def _initializer(cls: Any, every: tuple[Field[Any], ...]) -> Callable[..., None]:
    """An `__init__` that puts the compiled one in its place at the first call."""

    def __init__(self: object, /, *args: object, **kwargs: object) -> None:
        compiled = _compiled_initializer(cls, every)
        compiled.__qualname__ = __init__.__qualname__
        cls.__init__ = compiled
        compiled(self, *args, **kwargs)

    return __init__


def _compiled_initializer(cls: type, every: tuple[Field[Any], ...]) -> Callable[..., None]:
    """The compiled `__init__`: positional fields, then keyword-only ones, each set past the guard."""
    scope: dict[str, Any] = {"_set": _set, "_made_here": _MadeHere}
    parameters: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for f in every:
        value = f.name
        if f.default_factory is not MISSING:
            scope[f"_make_{f.name}"] = f.default_factory
            made = f"_make_{f.name}()"
            value = f"{made} if {f.name} is _made_here else {f.name}" if f.init else made
            default = "=_made_here"
        elif f.default is not MISSING:
            scope[f"_default_{f.name}"] = f.default
            default = f"=_default_{f.name}"
            value = f.name if f.init else default[1:]
        else:
            default = ""
        if f.init:
            (keywords if f.kw_only else parameters).append(f.name + default)
        elif not default:
            continue  # left to `__post_init__`
        body.append(f"_set(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    listed = ", ".join(["self", *parameters, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({listed}):\n " + "\n ".join(body or ["pass"]), scope)
    made_init: Callable[..., None] = scope["__init__"]
    made_init.__annotations__ = {f.name: f.type for f in every if f.init}
    return made_init


class _MadeHere:
    """The default of a parameter whose value a factory makes."""
