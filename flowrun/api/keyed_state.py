"""State of process functions: how it is declared in a class, and the columnar handles of functions that work on batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, get_args

import numpy.typing as npt
import pyarrow as pa

from flowrun.api.annotations import KNOWN, AnnotationError, hints_of, shown, type_of_annotation
from flowrun.api.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    Redistribution,
    ReducingStateDescriptor,
    StateDescriptor,
    TimeToLive,
    TtlUpdate,
    ValueStateDescriptor,
)
from flowrun.core import types
from flowrun.core.arrays import Bools, Integers
from flowrun.core.type_parser import parse_type
from flowrun.core.units import parse_duration_ms
from flowrun.errors import PipelineError, StateError

StateType: TypeAlias = types.DataType | pa.DataType | str | object
"""A type in any of its forms: SQL text such as `DECIMAL(10, 2)`, an Arrow type, a `DataType`, or an annotation such as `int`,
`list[str]` or a dataclass, whose instances are then given and taken.
"""

Migrate: TypeAlias = Callable[[Any], Any]
"""Makes a value of a state of what was kept under its former type; a function of the module."""

Lifetime: TypeAlias = TimeToLive | dt.timedelta | int | str
"""A time to live: `"1h 30m"`, a `timedelta`, or ms."""

Values: TypeAlias = pa.Array | npt.NDArray[Any] | list[Any]
Positions: TypeAlias = npt.NDArray[Any] | pa.Array | list[Any]
"""A boolean a key of the batch, or positions among the keys of the batch."""

REDUCTIONS = ("sum", "min", "max")
"""Names that stand for functions in `reducing_state`."""


def value_state(
    type: StateType | None = None,
    *,
    ttl: Lifetime | None = None,
    name: str | None = None,
    migrate: Migrate | None = None,
) -> Any:
    """Declare one value a key. In functions on rows the attribute is a `ValueState`, in functions on batches a `ValueColumn`.

    Args:
        type: of the value; None: from the attribute's annotation, as in `seen: ValueState[int] = value_state()`.
        ttl: how long a value is kept after it was written last.
        name: of the state in checkpoints; default: the attribute's name.
        migrate: makes a value of one that a savepoint has under another type, as `plan` says then.

    Raises:
        ValueError: not a type, or not a duration.
    """
    return StateDeclaration(
        ValueStateDescriptor("", data_type(type), _ttl(ttl), python=_python(type), migrate=migrate), name
    )


def list_state(
    type: StateType | None = None,
    *,
    ttl: Lifetime | None = None,
    name: str | None = None,
    migrate: Migrate | None = None,
) -> Any:
    """Declare a list a key, of elements of `type`: a `ListState` or `ListColumn`. The whole list expires at once.

    `migrate` makes an element of one of another type; a `type` of None is that of the annotation, `ListState[str]`.
    """
    return StateDeclaration(
        ListStateDescriptor("", data_type(type), _ttl(ttl), python=_python(type), migrate=migrate), name
    )


def map_state(
    key_type: StateType | None = None,
    type: StateType | None = None,
    *,
    ttl: Lifetime | None = None,
    name: str | None = None,
    migrate: Migrate | None = None,
) -> Any:
    """Declare a map a key, with entries from `key_type` to `type`: a `MapState` or `MapColumn`. Entries expire one by one.

    `migrate` makes the value of an entry of one of another type; types of None are those of the annotation, `MapState[str, int]`.
    """
    if (key_type is None) != (type is None):
        raise ValueError(
            "a map has two types: of its keys and of its values; or none, and the attribute's annotation says both"
        )
    return StateDeclaration(
        MapStateDescriptor(
            "", data_type(type), _ttl(ttl), key_type=data_type(key_type), python=_python(type), migrate=migrate
        ),
        name,
    )


def reducing_state(
    function: Callable[[Any, Any], Any] | str,
    type: StateType,
    *,
    ttl: Lifetime | None = None,
    name: str | None = None,
) -> Any:
    """Declare a value a key that combines all that is added: an `AppendingState` or `AppendingColumn`.

    `function` is `"sum"`, `"min"` or `"max"`, or an associative function of two values (of two Arrow arrays in functions on batches);
    the first came earlier.
    """
    if isinstance(function, str) and function not in REDUCTIONS:
        raise ValueError(f"a reducing state combines by {', '.join(REDUCTIONS)} or by a function, got '{function}'")
    return StateDeclaration(ReducingStateDescriptor("", data_type(type), _ttl(ttl), function=function), name)


def aggregating_state(
    function: AggregateFunction[Any, Any, Any],
    accumulator_type: StateType,
    *,
    ttl: Lifetime | None = None,
    name: str | None = None,
) -> Any:
    """Declare an aggregate a key: an `AppendingState` or `AppendingColumn`; `accumulator_type` is that of its accumulators."""
    return StateDeclaration(
        AggregatingStateDescriptor("", data_type(accumulator_type), _ttl(ttl), function=function), name
    )


def operator_state(type: StateType, *, redistribution: str = "split", name: str | None = None) -> Any:
    """Declare a list that belongs to the subtask, not to a key: a `ListState`. May be used without keys.

    Args:
        type: of the elements.
        redistribution: at another parallelism the elements are dealt out (`split`), given whole to all subtasks (`union`), or
            identical everywhere, so that those of one subtask are kept (`broadcast`).
        name: in checkpoints; default: the attribute's name.
    """
    mode = Redistribution(redistribution)
    return StateDeclaration(ListStateDescriptor("", data_type(type), python=_python(type)), name, mode)


def broadcast_state(key_type: StateType, type: StateType, *, name: str | None = None) -> Any:
    """Declare a map that is the same on all subtasks: a `BroadcastState` or `BroadcastColumn`; see `flowrun.api.broadcast_function`.

    Only functions with a broadcast input can have it. It belongs to no key and does not expire.

    Args:
        key_type: of the map's keys.
        type: of its values.
        name: in checkpoints, and for `stream.broadcast(name)`; default: the attribute's name.
    """
    descriptor = MapStateDescriptor("", data_type(type), key_type=data_type(key_type), python=_python(type))
    return StateDeclaration(descriptor, name, Redistribution.BROADCAST)


class StateDeclaration:
    """State that a process function declares as an attribute of its class, or of itself in `__init__`.

    When a subtask starts, the attribute becomes the state's handle.

    Attributes:
        redistribution: of operator state; None for keyed state.
    """

    def __init__(
        self, prototype: StateDescriptor, name: str | None = None, redistribution: Redistribution | None = None
    ) -> None:
        self.prototype = prototype
        self.name = name
        self.redistribution = redistribution
        self._owner: type | None = None

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._owner = owner

    @property
    def is_broadcast(self) -> bool:
        """Whether it is a map that is the same on all subtasks."""
        return self.redistribution is not None and isinstance(self.prototype, MapStateDescriptor)

    def descriptor(self, attribute: str) -> StateDescriptor:
        """The state's descriptor, given the name of the attribute that declares it.

        Raises:
            PipelineError: its type is neither given nor annotated, or the annotation has no SQL type.
        """
        found = self.prototype if self.prototype.type is not types.NULL else self._annotated(attribute)
        return replace(found, name=self.name or attribute)

    def _annotated(self, attribute: str) -> StateDescriptor:
        """The descriptor with the types that the attribute's annotation says, as in `ValueState[int]`."""
        owner = "" if self._owner is None else f" of {self._owner.__qualname__}"
        annotation = None if self._owner is None else hints_of(self._owner).get(attribute)
        parts = get_args(annotation)
        is_map = isinstance(self.prototype, MapStateDescriptor)
        if len(parts) != 1 + is_map:
            wanted = "MapState[str, int]" if is_map else "ValueState[int]"
            raise PipelineError.of(
                f"the state '{attribute}'{owner} has no type", f"give it one, or annotate it: {attribute}: {wanted} = …"
            )
        try:
            kinds = [type_of_annotation(p) for p in parts]
        except AnnotationError as error:
            raise PipelineError.of(f"the state '{attribute}'{owner} is annotated {error}", error.hint) from error
        if None in kinds:
            raise PipelineError.of(
                f"the state '{attribute}'{owner} is annotated {shown(annotation)}, which says no type"
            )
        more = {"key_type": kinds[0]} if is_map else {}
        return replace(self.prototype, type=kinds[-1], python=parts[-1], **more)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise StateError(
            f"this state has no handle yet ('{name}' was asked of it)",
            hint="state can be used from open() on, once a subtask runs the function",
        )


def declared_states(function: object) -> Mapping[str, StateDeclaration]:
    """Attribute → declaration, for all states that a function's class, its bases and itself declare."""
    found: dict[str, StateDeclaration] = {}
    for place in (*(vars(c) for c in reversed(type(function).__mro__)), getattr(function, "__dict__", {})):
        for attribute, value in place.items():
            if isinstance(value, StateDeclaration):
                found[attribute] = value
            elif attribute in found:
                del found[attribute]
    return found


class ValueColumn(Protocol):
    """One value for each key of the current batch (`context.keys`). `where` chooses among these keys; None: all."""

    def get(self) -> pa.Array:
        """The value of each key; NULL if it has none."""
        ...

    def numpy(self, default: Any) -> npt.NDArray[Any]:
        """The value of each key as a NumPy array of its own, `default` where there is none. Numbers, booleans and times (as integers)."""
        ...

    def update(self, values: Values, where: Positions | None = None) -> None:
        """Replace the values of the chosen keys, one each; NULL removes."""
        ...

    def clear(self, where: Positions | None = None) -> None:
        """Remove the values of the chosen keys."""
        ...


class ListColumn(Protocol):
    """A list for each key of the current batch."""

    def get(self) -> pa.Array:
        """The list of each key, NULL if it has none."""
        ...

    def add(self, values: Values, keys: Positions | None = None) -> None:
        """Append elements in order; `keys` holds the position of each one's key. None: values are one a row of the batch."""
        ...

    def update(self, lists: Values, where: Positions | None = None) -> None:
        """Replace the lists of the chosen keys; NULL and empty lists remove."""
        ...

    def clear(self, where: Positions | None = None) -> None:
        """Remove the lists of the chosen keys."""
        ...


class MapColumn(Protocol):
    """A map for each key of the current batch. `keys` holds the position of each entry's key; None: entries are one a row."""

    def get(self, map_keys: Values, keys: Positions | None = None) -> pa.Array:
        """The values of entries; NULL for those that are not there."""
        ...

    def contains(self, map_keys: Values, keys: Positions | None = None) -> Bools:
        """Which entries are there."""
        ...

    def put(self, map_keys: Values, values: Values, keys: Positions | None = None) -> None:
        """Add or replace entries; of several alike the last counts."""
        ...

    def remove(self, map_keys: Values, keys: Positions | None = None) -> None:
        """Remove entries."""
        ...

    def items(self, where: Positions | None = None) -> tuple[Integers, pa.Array, pa.Array]:
        """All entries of the chosen keys: position of the key, map key, value; in the order of keys, then as they came."""
        ...

    def clear(self, where: Positions | None = None) -> None:
        """Remove all entries of the chosen keys."""
        ...


class AppendingColumn(Protocol):
    """Reducing or aggregating state for each key of the current batch."""

    def get(self) -> pa.Array:
        """The result of each key; NULL if nothing was added."""
        ...

    def add(self, values: Values, keys: Positions | None = None) -> None:
        """Take in values; `keys` holds the position of each one's key. None: values are one a row of the batch."""
        ...

    def clear(self, where: Positions | None = None) -> None:
        """Forget what was added to the chosen keys."""
        ...


def data_type(given: StateType | None) -> types.DataType:
    """The type that is given in one of its forms; NULL for None: the annotation of the attribute says it.

    Raises:
        ValueError: it is no type.
    """
    if given is None:
        return types.NULL
    if isinstance(given, types.DataType):
        return given
    if isinstance(given, str):
        return parse_type(given)
    if isinstance(given, pa.DataType):
        return types.from_arrow(given)
    try:
        known = type_of_annotation(given)
    except AnnotationError:
        known = None
    if known is None:
        raise ValueError(
            f"{given!r} is not a type of state; write a SQL type such as 'BIGINT' or 'DECIMAL(10, 2)', an Arrow type, or "
            f"an annotation: {KNOWN}"
        )
    return known


def _python(given: StateType | None) -> Any:
    """The annotation that values are to be given as; None: the type was said otherwise."""
    return None if isinstance(given, types.DataType | pa.DataType | str) else given


def _ttl(given: Lifetime | None) -> TimeToLive | None:
    if given is None or isinstance(given, TimeToLive):
        ttl = given
    elif isinstance(given, dt.timedelta):
        ttl = TimeToLive(round(given.total_seconds() * 1000))
    else:
        ttl = TimeToLive(parse_duration_ms(given) if isinstance(given, str) else given)
    if ttl is not None and ttl.ttl_ms <= 0:
        raise ValueError(f"a time to live must be longer than 0, got {given!r}")
    return ttl


__all__ = [
    "AppendingColumn",
    "Lifetime",
    "ListColumn",
    "MapColumn",
    "StateDeclaration",
    "StateType",
    "TimeToLive",
    "TtlUpdate",
    "ValueColumn",
    "aggregating_state",
    "broadcast_state",
    "declared_states",
    "list_state",
    "map_state",
    "operator_state",
    "reducing_state",
    "value_state",
]
