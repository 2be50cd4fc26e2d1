"""State as operators and user functions see it: descriptors, handles and snapshots.

Keyed state belongs to the current key and is redistributed by key group; operator state belongs to a subtask and is
redistributed by its mode. Whatever the handle, a snapshot is Arrow tables (`OperatorSnapshot`), so a checkpoint is Parquet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from flowrun.core.types import DataType

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
InputT_contra = TypeVar("InputT_contra", contravariant=True)
OutputT_co = TypeVar("OutputT_co", covariant=True)

KEY_GROUP_COLUMN = "__key_group"
"""Name of the int32 column that every keyed state table starts with."""


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups that one subtask owns: `start` ≤ group < `stop`."""

    start: int
    stop: int

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.start <= group < self.stop

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """How long unused state is kept, ms of processing time since the last write."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class StateDescriptor:
    """A named piece of keyed state; `type` is the type of a value (of a list element, of a map's value)."""

    name: str
    type: DataType
    ttl: TimeToLive | None = None


@dataclass(frozen=True, slots=True)
class ValueStateDescriptor(StateDescriptor):
    """One value a key."""


@dataclass(frozen=True, slots=True)
class ListStateDescriptor(StateDescriptor):
    """A list a key."""


@dataclass(frozen=True, slots=True)
class MapStateDescriptor(StateDescriptor):
    """A map a key; `key_type` is the type of the map's own keys."""

    key_type: DataType = field(kw_only=True)


class ValueState(Protocol[T]):
    """One value of the current key."""

    def value(self) -> T | None: ...
    def update(self, value: T) -> None: ...
    def clear(self) -> None: ...


class ListState(Protocol[T]):
    """A list of the current key."""

    def get(self) -> Iterable[T]: ...
    def add(self, value: T) -> None: ...
    def update(self, values: Iterable[T]) -> None: ...
    def clear(self) -> None: ...


class MapState(Protocol[K, V]):
    """A map of the current key."""

    def get(self, key: K) -> V | None: ...
    def put(self, key: K, value: V) -> None: ...
    def remove(self, key: K) -> None: ...
    def items(self) -> Iterator[tuple[K, V]]: ...
    def clear(self) -> None: ...


class AppendingState(Protocol[InputT_contra, OutputT_co]):
    """Reducing or aggregating state of the current key: add inputs, read the result."""

    def get(self) -> OutputT_co | None: ...
    def add(self, value: InputT_contra) -> None: ...
    def clear(self) -> None: ...


class Redistribution(Enum):
    """What happens to operator state at another parallelism: dealt out, given whole to all, or identical everywhere."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class OperatorState:
    """A list-like piece of operator state: one row an element."""

    rows: pa.Table
    redistribution: Redistribution = Redistribution.SPLIT


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """Everything that one operator of one subtask remembers at a barrier.

    Attributes:
        keyed: state name → table; the first column is `KEY_GROUP_COLUMN`, then the key columns, then the values.
            Tables only reference immutable Arrow data, so taking a snapshot copies nothing.
        operator: state name → rows with their redistribution mode.
    """

    keyed: Mapping[str, pa.Table] = field(default_factory=dict)
    operator: Mapping[str, OperatorState] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return not self.keyed and not self.operator


class AggregateFunction(Protocol[InputT_contra, A, OutputT_co]):
    """A row-wise aggregate for `AggregatingState`: create, add, merge and read an accumulator."""

    def create_accumulator(self) -> A: ...
    def add(self, value: InputT_contra, accumulator: A) -> A: ...
    def merge(self, left: A, right: A) -> A: ...
    def get_result(self, accumulator: A) -> OutputT_co: ...


class KeyedStateStore(Protocol):
    """Where keyed functions get their handles; valid during `open`, bound to the current key while processing."""

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]: ...
    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]: ...
    def map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...
