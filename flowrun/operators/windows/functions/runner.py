"""What the runners of window functions on rows and on batches share: the life of the function, its state, errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from flowrun.api.keyed_state import StateDeclaration
from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot, SegmentedTable, StateDescriptor
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.errors import DataError, FlowrunError
from flowrun.operators.function_loading import describe, where
from flowrun.operators.process.opening import FunctionOpenContext
from flowrun.operators.windows.functions.fired import Windows
from flowrun.operators.windows.functions.loading import LoadedWindowFunction, window_fields

_NO_TIME = -(2**63)


@record
class FunctionSettings:
    """What a runner is made from.

    Attributes:
        place: names function and step in messages.
        key_fields: the key columns.
        input_schema: columns of the rows of windows.
        output_schema: columns of what the function sends.
        side_schemas: those of its side outputs.
    """

    loaded: LoadedWindowFunction
    place: str
    key_fields: tuple[Field, ...]
    input_schema: Schema
    output_schema: Schema
    side_schemas: Mapping[str, Schema]


class Backend(Protocol):
    """Where states are: of keys, or of keys and windows."""

    def handle(self, descriptor: StateDescriptor) -> Any:
        """The handle of a state; called once for each, before `restore`."""
        ...

    def restore(self, restored: OperatorSnapshot) -> None:
        """Take back states."""
        ...

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """Table by state name."""
        ...

    def advance(self, now: int) -> None:
        """Processing time is `now`."""
        ...

    @property
    def newest_write(self) -> int:
        """Latest write of state with a time to live, ms."""
        ...

    def close(self) -> None:
        """Wait for nothing."""
        ...


class RunnerBase:
    """The common part. Subclasses make the backends, and call the function."""

    def __init__(self, settings: FunctionSettings, context: OperatorContext, output: Output) -> None:
        self._settings = settings
        self._function: Any = settings.loaded.function
        self._place = settings.place
        self._context = context
        self._output = output
        self._backends: list[tuple[Backend, frozenset[str]]] = []
        self._opened = False
        self._now = _NO_TIME
        self.window_handles: dict[str, Any] = {}
        self.global_handles: dict[str, Any] = {}

    # ---- life and state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Make states and take back what they held."""
        loaded, keys = self._settings.loaded, self._settings.key_fields
        self._make_states(loaded.global_states, keys, self.global_handles, self._global_backend)
        self._make_states(loaded.window_states, window_fields(keys), self.window_handles, self._window_backend)
        if restored is not None:
            for backend, names in self._backends:
                backend.restore(replace(restored, keyed={n: t for n, t in restored.keyed.items() if n in names}))
                self._now = max(self._now, backend.newest_write)
        self._tick()

    def _make_states(
        self,
        states: Mapping[str, StateDeclaration],
        fields: tuple[Field, ...],
        handles: dict[str, Any],
        make: Callable[[tuple[Field, ...]], Backend],
    ) -> None:
        if not states:
            return
        backend = make(fields)
        for attribute, declaration in states.items():
            descriptor = declaration.descriptor(attribute)
            handles[descriptor.name] = backend.handle(descriptor)
            setattr(self._function, attribute, handles[descriptor.name])
        self._backends.append((backend, frozenset(handles)))

    def _global_backend(self, fields: tuple[Field, ...]) -> Backend:
        raise NotImplementedError

    def _window_backend(self, fields: tuple[Field, ...]) -> Backend:
        raise NotImplementedError

    def open(self) -> None:
        """Open the function."""
        self._opened = True
        handles = {**self.window_handles, **self.global_handles}
        try:
            self._function.open(FunctionOpenContext(self._context, handles, self._place))
        except Exception as error:
            raise DataError(f"{self._place}: open() raised {describe(error)}{where(error, __file__)}") from error

    def close(self) -> None:
        """Close the function if it was opened."""
        for backend, _ in self._backends:
            backend.close()
        if self._opened:
            self._opened = False
            try:
                self._function.close()
            except Exception as error:
                raise DataError(f"{self._place}: close() raised {describe(error)}{where(error, __file__)}") from error

    def snapshot(self) -> dict[str, SegmentedTable]:
        """The tables of states that have rows."""
        tables = {}
        for backend, names in self._backends:
            tables.update({n: t for n, t in backend.snapshot().items() if n in names and t.segments})
        return tables

    def _tick(self) -> None:
        """Processing time, which never goes back."""
        self._now = max(self._now, self._context.processing_time.now_ms())
        for backend, _ in self._backends:
            backend.advance(self._now)

    @property
    def wants_clear(self) -> bool:
        """Whether windows have state, or the function wants to know."""
        return bool(self.window_handles) or self._settings.loaded.clears

    @property
    def clears_in_turn(self) -> bool:
        """Whether the function is told of each window singly, which other windows may notice in state of the key."""
        return self._settings.loaded.clears and not self._settings.loaded.batches

    # ---- errors

    def _fail(self, error: Exception, method: str, windows: Windows) -> NoReturn:
        """Raises what stands for an error in the function: names it, the window, and the line of the user's code."""
        if isinstance(error, FlowrunError) and not isinstance(error, DataError):
            raise error
        first = (
            f"{tuple(k[0].as_py() for k in windows.keys)}, {windows.starts[0]} to {windows.ends[0]} ms"
            if len(windows)
            else ""
        )
        shown = (
            f"; the window is {first}" if len(windows) == 1 else f"; {len(windows)} windows fire, the first is {first}"
        )
        if isinstance(error, DataError):
            message = error.message if self._place in error.message else f"{self._place}: {method}: {error.message}"
            raise DataError(f"{message}{shown}", hint=error.hint) from error
        raise DataError(
            f"{self._place}: {method} raised {describe(error)}{where(error, __file__)}{shown}",
            hint="handle such input in the function, or drop it with a filter before",
        ) from error


class FunctionTime:
    """What contexts know of time and state.

    Attributes:
        current_watermark: event time, ms.
        window_state: handles by name; `global_state` likewise.
    """

    def __init__(self, runner: RunnerBase, now: Callable[[], int]) -> None:
        self.current_watermark = _NO_TIME
        self.window_state: Mapping[str, Any] = runner.window_handles
        self.global_state: Mapping[str, Any] = runner.global_handles
        self._now = now

    @property
    def processing_time(self) -> int:
        """What the clock shows."""
        return self._now()
