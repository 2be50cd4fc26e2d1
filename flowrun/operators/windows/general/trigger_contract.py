"""What triggers are: the contract between the general window operator and what decides when its windows fire.

A trigger is a frozen value without state of its own; what it remembers of a window is in `TriggerContext`, as named numbers.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from flowrun.api.window_function import Window
from flowrun.api.windowing import TriggerResult
from flowrun.core.record import record
from flowrun.core.schema import Schema

Number: TypeAlias = int | float
Register: TypeAlias = Callable[[bool, int], None]


@dataclass(slots=True)
class TriggerContext:
    """What a trigger may do for one key and window.

    Attributes:
        current_watermark: event time, ms.
        current_processing_time: ms.
        state: the window's numbers, by name; `prefix` separates those of combined triggers.
        register: called with (processing time?, ms) for each new timer; `delete` likewise.
    """

    current_watermark: int
    current_processing_time: int
    state: MutableMapping[str, Number]
    register: Register
    delete: Register
    prefix: str = ""

    def get(self, name: str, default: Any = None) -> Any:
        """A number, or `default`."""
        return self.state.get(self.prefix + name, default)

    def put(self, name: str, value: Number) -> None:
        """Remember a number."""
        self.state[self.prefix + name] = value

    def remove(self, *names: str) -> None:
        """Forget numbers."""
        for name in names:
            self.state.pop(self.prefix + name, None)

    def part(self, number: int) -> TriggerContext:
        """The context of one of several combined triggers."""
        return TriggerContext(
            self.current_watermark,
            self.current_processing_time,
            self.state,
            self.register,
            self.delete,
            f"{self.prefix}{number}.",
        )


@record
class TriggerRows:
    """New rows of one window, in arrival order: their times in ms, and what the trigger reads of them.

    Attributes:
        values: numbers if it reads a column, whole rows if it reads rows, else None.
    """

    times: npt.NDArray[np.int64]
    values: Sequence[Any] | None = None


Decision: TypeAlias = tuple[int, TriggerResult]


class Trigger:
    """Base of all triggers. They override `on_element` and what else they need, and pickle. Those of users are another class,
    `flowrun.api.windowing.Trigger`, which `user_triggers` makes one of these.

    Attributes:
        can_merge: whether it may be used with session windows; then `on_merge` takes over what merged windows remembered.
        column: position of the input column whose numbers `on_element` gets, or None.
        reads_rows: `on_element` gets the whole row instead, as a dict.
        watermark_step_ms: what happens may depend on where among the rows a watermark passes a multiple of so many ms; 0: only on where it
            passes the end of the window.
    """

    can_merge: bool = True
    column: int | None = None
    reads_rows: bool = False
    watermark_step_ms: int = 1

    def bound(self, schema: Schema) -> Trigger:
        """The trigger for rows with these columns: one that names a column knows its position then."""
        return self

    def loaded(self) -> Trigger:
        """The trigger as one subtask uses it: users' classes are made here."""
        return self

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """A row was added."""
        raise NotImplementedError

    def on_elements(self, rows: TriggerRows, window: Window, context: TriggerContext) -> list[Decision]:
        """Rows were added: (position, result) where something happens. Overridden where the rows need not be looked at singly."""
        decisions: list[Decision] = []
        for position, time in enumerate(rows.times.tolist()):
            value = rows.values[position] if rows.values is not None else None
            result = self.on_element(time, value, window, context)
            if result is not TriggerResult.CONTINUE:
                decisions.append((position, result))
        return decisions

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """The watermark reached the event-time timer `time` of this window (perhaps another trigger's)."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Processing time reached the timer `time`, or bounded input ended: then `time` is the window's last."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Windows became one; `merged` are their contexts, which are cleared afterwards."""

    def on_fired(self, window: Window, context: TriggerContext) -> None:
        """The window fired because of another trigger that this one is combined with."""

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Forget the window: its numbers and timers."""
