"""State that belongs to a subtask of a process function, not to a key: a list that is redistributed when the parallelism changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.state import OperatorState, Redistribution, StateDescriptor
from flowrun.errors import StateError
from flowrun.state.backend.values import ValueType


class SubtaskList:
    """A `ListState` of the subtask."""

    def __init__(self, place: str, descriptor: StateDescriptor, redistribution: Redistribution) -> None:
        self._place = place
        self._type = ValueType(place, descriptor.type, descriptor.python)
        self._redistribution = redistribution
        self._kept: list[Any] = []

    def get(self) -> Sequence[Any]:
        """The elements."""
        load = self._type.load
        return list(self._kept) if load is None else [load(v) for v in self._kept]

    def add(self, value: Any) -> None:
        """Append an element."""
        self._kept.append(self._type.store(value))

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements."""
        self._kept = [self._type.store(v) for v in values]

    def clear(self) -> None:
        """Remove all elements."""
        self._kept = []

    def snapshot(self) -> OperatorState:
        """The elements as rows."""
        return OperatorState(pa.table({"value": self._type.array(self._kept)}), self._redistribution)

    def restore(self, rows: pa.Table) -> None:
        """Take back rows.

        Raises:
            StateError: they are of another type.
        """
        wanted = pa.schema([("value", self._type.type.arrow)])
        if not rows.schema.equals(wanted):
            raise StateError(
                f"{self._place} holds {self._type.type}, the snapshot has {rows.schema.field(0).type}",
                hint="declare the state with its former type, or give the step another uid",
            )
        self._kept = self._type.stored(rows["value"].combine_chunks())
