"""Window functions: users' classes that see all rows of a window when it fires.

A function extends `ProcessWindowFunction` and has **either**

* `process(key, context, rows)`, for each window that fires: the values of the key columns, and the rows as dicts in arrival order; **or**
* `process_batch(windows, rows, context)`, for all windows that fire together: a row a window (the key columns, `window_start` and
  `window_end`), and the rows of all of them, window by window. Ten times as fast and more.

    class Spread(ProcessWindowFunction):
        def process(self, key, context, rows):
            prices = [row["price"] for row in rows]
            yield {"item": key[0], "start": context.window.start, "spread": max(prices) - min(prices)}

    class Spreads(ProcessWindowFunction):
        def process_batch(self, windows, rows, context):
            prices = rows.column("price").to_numpy()
            first = context.offsets[:-1]
            spread = np.maximum.reduceat(prices, first) - np.minimum.reduceat(prices, first)
            return pa.record_batch({"item": windows.column("item"), "start": windows.column("window_start"), "spread": spread})

A window fires again where its trigger says so, for example with each late row; the function then sees all rows that the window has.
What is sent has the last time of the window as event time (in the global window the newest of its rows).

State is declared in the class. `total = value_state("BIGINT")` is state of the key, which all its windows share (Flink's *global state*);
`fired = window_state(value_state("BIGINT"))` is state of one window of the key, and is forgotten with it. Windows that merge have no
state of their own. From `open` on, the attributes are handles for the key and the window at hand: those of `flowrun.api.keyed_state`.
When a window is forgotten, `clear(context)` (beside `process_batch`: `clear_batch(windows, context)`) is called, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from flowrun.api.keyed_state import StateDeclaration, Values
from flowrun.api.process_function import OpenContext
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP


class Window(NamedTuple):
    """The time [start, end), ms. The global window ends at `MAX_TIMESTAMP`."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last time inside; the global window is never over before the end of time."""
        return self.end if self.end == MAX_TIMESTAMP else self.end - 1


class WindowStateDeclaration(StateDeclaration):
    """State of one window of a key."""


def window_state(declaration: Any) -> Any:
    """Declare state of each window, of the kind that another declaration has: `value_state("BIGINT")`, for example.

    Raises:
        TypeError: the argument does not declare keyed state.
    """
    if not isinstance(declaration, StateDeclaration) or declaration.redistribution is not None:
        raise TypeError("window_state takes a declaration of keyed state, such as value_state('BIGINT')")
    return WindowStateDeclaration(declaration.prototype, declaration.name)


class WindowTimeContext(Protocol):
    """Time and state as window functions see them."""

    @property
    def current_watermark(self) -> int:
        """Event time, ms. In `process_batch` at least the end of each window that fires on time; how far beyond depends on the batches."""
        ...

    @property
    def processing_time(self) -> int:
        """What the clock shows, ms."""
        ...

    @property
    def window_state(self) -> Mapping[str, Any]:
        """The handles of state that is declared with `window_state`, by name."""
        ...

    @property
    def global_state(self) -> Mapping[str, Any]:
        """The handles of the other states, by name."""
        ...


class WindowContext(WindowTimeContext, Protocol):
    """The context of one window that fires, or is forgotten."""

    @property
    def window(self) -> Window:
        """Its bounds, ms; on a stream with a time zone its local times."""
        ...

    def collect(self, row: Mapping[str, Any]) -> None:
        """Send a row."""
        ...

    def side_output(self, name: str, row: Mapping[str, Any]) -> None:
        """Send a row to a declared side output."""
        ...


class WindowBatchContext(WindowTimeContext, Protocol):
    """The context of windows that fire together.

    No window is among them twice, and if the function has state of the key, no key.
    """

    @property
    def offsets(self) -> Integers:
        """One more than there are windows: the rows of window i are at `offsets[i]` to `offsets[i + 1]`."""
        ...

    @property
    def window_index(self) -> Integers:
        """For each row the position of its window."""
        ...

    def collect(self, rows: pa.RecordBatch, parents: Values | None = None) -> None:
        """Send rows; `parents` are the positions of their windows, None: row i is that of window i."""
        ...

    def side_output(self, name: str, rows: pa.RecordBatch, parents: Values | None = None) -> None:
        """Send rows to a declared side output."""
        ...


class ProcessWindowFunction:
    """A function over the rows of windows; see the module. Each subtask has its own, and calls it from its own thread."""

    def open(self, context: OpenContext) -> None:
        """Called once before all else: acquire resources. State can be used, but belongs to no key yet."""

    def close(self) -> None:
        """Called once at the end, after an error too: release them."""


__all__ = [
    "ProcessWindowFunction",
    "Window",
    "WindowBatchContext",
    "WindowContext",
    "WindowTimeContext",
    "window_state",
]
