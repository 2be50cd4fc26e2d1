"""State as operators and user functions see it: descriptors, handles and snapshots.

Keyed state belongs to the current key and is redistributed by key group; operator state belongs to a subtask and is
redistributed by its mode. Whatever the handle, a snapshot is Arrow tables (`OperatorSnapshot`), so a checkpoint is Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.types import DataType
from flowrun.errors import InternalError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
InputT_contra = TypeVar("InputT_contra", contravariant=True)
OutputT_co = TypeVar("OutputT_co", covariant=True)

KEY_GROUP_COLUMN = "__key_group"
"""Name of the int32 column that every keyed state table starts with."""


KEY_COLUMNS_METADATA = b"flowrun.key_columns"
"""Schema metadata of a keyed state table: how many key columns follow the key group. Another number of them is another state."""


MIGRATED_BY = b"flowrun.migrated_by."
"""Begins the key of schema metadata of a state table: the values of the column that follows, if they were of another type, are migrated
by the function that is named there."""


def with_migration(schema: pa.Schema, column: str, function: Callable[..., Any]) -> pa.Schema:
    """The schema of a table one of whose columns a function migrates.

    >>> migrations_of(with_migration(pa.schema([("n", pa.int64())]), "n", len))
    {'n': 'builtins:len'}
    """
    name = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    return schema.with_metadata({**(schema.metadata or {}), MIGRATED_BY + column.encode(): name.encode()})


def migrations_of(schema: pa.Schema) -> dict[str, str]:
    """Column → the name of the function that migrates its values."""
    found = schema.metadata or {}
    return {k.removeprefix(MIGRATED_BY).decode(): v.decode() for k, v in found.items() if k.startswith(MIGRATED_BY)}


def keyed_schema(keys: Iterable[pa.Field], values: Iterable[pa.Field]) -> pa.Schema:
    """Columns of a keyed state table: the key group, the key columns, the values; says in its metadata how many are keys.

    Raises:
        InternalError: two columns have one name: what is written so could never be read again.

    >>> keyed_schema([pa.field("user", pa.string())], [pa.field("n", pa.int64())]).names
    ['__key_group', 'user', 'n']
    """
    key_fields = list(keys)
    group = pa.field(KEY_GROUP_COLUMN, pa.int32(), nullable=False)
    fields = [group, *key_fields, *values]
    names = [f.name for f in fields]
    if len(set(names)) < len(names):
        twice = ", ".join(f"'{n}'" for n in dict.fromkeys(names) if names.count(n) > 1)
        raise InternalError(f"a state table has more than one column {twice}")
    return pa.schema(fields, {KEY_COLUMNS_METADATA: str(len(key_fields)).encode()})


@record
class KeyGroupRange:
    """The key groups that one subtask owns: `start` ≤ group < `stop`."""

    start: int
    stop: int

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.start <= group < self.stop

    def __len__(self) -> int:
        return self.stop - self.start


class TtlUpdate(Enum):
    """What makes state live on: writing it, or reading it too."""

    ON_WRITE = "write"
    ON_READ_AND_WRITE = "read"


@record
class TimeToLive:
    """How long unused state is kept, ms of processing time since the last write (or read); expired state is never returned.

    Processing time here never goes back: while the clock is behind a time that it has shown before, that time counts.
    """

    ttl_ms: int
    update: TtlUpdate = TtlUpdate.ON_WRITE


@record
class StateDescriptor:
    """A named piece of keyed state; `type` is the type of a value (of a list element, of a map's value).

    Attributes:
        python: annotation of these values: records and dicts are given as it says; None: as Arrow gives them.
        migrate: makes a value of one that was kept under another type; None: nothing does.
    """

    name: str
    type: DataType
    ttl: TimeToLive | None = None
    python: Any = field(default=None, kw_only=True, compare=False)
    migrate: Callable[[Any], Any] | None = field(default=None, kw_only=True, compare=False)


@record
class ValueStateDescriptor(StateDescriptor):
    """One value a key."""


@record
class ListStateDescriptor(StateDescriptor):
    """A list a key."""


@record
class MapStateDescriptor(StateDescriptor):
    """A map a key; `key_type` is the type of the map's own keys."""

    key_type: DataType = field(kw_only=True)


@record
class ReducingStateDescriptor(StateDescriptor):
    """One value a key: all inputs combined by an associative function of two of them, or by `sum`, `min` or `max`."""

    function: Callable[[Any, Any], Any] | str = field(kw_only=True)


@record
class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator of type `type` a key."""

    function: AggregateFunction[Any, Any, Any] = field(kw_only=True)


class ValueState(Protocol[T]):
    """One value of the current key."""

    def value(self) -> T | None:
        """The value; None if there is none."""
        ...

    def update(self, value: T | None) -> None:
        """Replace the value; None removes it."""
        ...

    def clear(self) -> None:
        """Remove the value."""
        ...


class ListState(Protocol[T]):
    """A list of the current key."""

    def get(self) -> Sequence[T]:
        """The elements, in order; empty if there are none."""
        ...

    def add(self, value: T) -> None:
        """Append an element."""
        ...

    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list."""
        ...

    def clear(self) -> None:
        """Remove all elements."""
        ...


class MapState(Protocol[K, V]):
    """A map of the current key."""

    def get(self, key: K) -> V | None:
        """The value of an entry; None if there is none."""
        ...

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry."""
        ...

    def remove(self, key: K) -> None:
        """Remove an entry, if it is there."""
        ...

    def __contains__(self, key: object) -> bool: ...

    def __len__(self) -> int: ...

    def items(self) -> Iterator[tuple[K, V]]:
        """A copy of the entries, in the order in which they came: changing the map on the way is allowed."""
        ...

    def clear(self) -> None:
        """Remove all entries."""
        ...


class AppendingState(Protocol[InputT_contra, OutputT_co]):
    """Reducing or aggregating state of the current key."""

    def get(self) -> OutputT_co | None:
        """The result; None if nothing was added."""
        ...

    def add(self, value: InputT_contra) -> None:
        """Take in one more value."""
        ...

    def clear(self) -> None:
        """Forget what was added."""
        ...


class Redistribution(Enum):
    """What happens to operator state at another parallelism: dealt out, given whole to all, or alike everywhere.

    State that is alike in all subtasks stays where it is: each new subtask gets that of one old one, with what was in flight to it.
    """

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@record
class OperatorState:
    """A list-like piece of operator state: one row an element."""

    rows: pa.Table
    redistribution: Redistribution = Redistribution.SPLIT


class StateSegment:
    """Rows of a keyed state table that never change. Identity is object identity: while snapshots name the same object, its rows
    are written once.

    Args:
        materialise: gives the rows (first column `KEY_GROUP_COLUMN`). Called at most once at a time, on a thread of the upload,
            concurrently with the operator: it may only touch immutable data. Called again if the rows are needed again.
    """

    __slots__ = ("_materialise",)

    def __init__(self, materialise: Callable[[], pa.Table]) -> None:
        self._materialise = materialise

    def rows(self) -> pa.Table:
        """The rows; may take long."""
        return self._materialise()


@record
class SegmentedTable:
    """A keyed state table in immutable pieces, so that a checkpoint writes only pieces that the one before did not have.

    Attributes:
        schema: of every segment; `KEY_GROUP_COLUMN` first, then the key columns.
        segments: oldest first.
        key: None: the table is the bag of all rows. Else an upsert log: of rows alike in the columns `KEY_GROUP_COLUMN` and `key`
            the one in the last segment counts (a segment holds each key once), and not even that if its `DELETED_COLUMN` is true.
            What operators restore has neither dead rows nor that column.
    """

    schema: pa.Schema
    segments: tuple[StateSegment, ...]
    key: tuple[str, ...] | None = None


DELETED_COLUMN = "__deleted"
"""Name of the bool column, last in an upsert log, that marks keys without a value."""


@record
class OperatorSnapshot:
    """Everything that one operator of one subtask remembers at a barrier.

    Attributes:
        keyed: state name → table; the first column is `KEY_GROUP_COLUMN`, then the key columns, then the values.
            Tables only reference immutable Arrow data, so taking a snapshot copies nothing. Written whole each time.
        operator: state name → rows with their redistribution mode.
        segmented: state name → table in segments, written incrementally. What is restored is always in `keyed`.
    """

    keyed: Mapping[str, pa.Table] = field(default_factory=dict)
    operator: Mapping[str, OperatorState] = field(default_factory=dict)
    segmented: Mapping[str, SegmentedTable] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return not self.keyed and not self.operator and not self.segmented


class AggregateFunction(Protocol[InputT_contra, A, OutputT_co]):
    """An aggregate for aggregating state. Accumulators are values of the state's declared type, never changed in place.

    In functions that work on batches, `add`, `merge` and `get_result` get and return Arrow arrays, one entry a row or key.
    """

    def create_accumulator(self) -> A:
        """The accumulator of nothing."""
        ...

    def add(self, value: InputT_contra, accumulator: A) -> A:
        """The accumulator with one more value."""
        ...

    def merge(self, left: A, right: A) -> A:
        """Both together; `left` came first."""
        ...

    def get_result(self, accumulator: A) -> OutputT_co:
        """What it amounts to."""
        ...
