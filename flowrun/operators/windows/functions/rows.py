"""Window functions that are called for each window: `process` and `clear`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from flowrun.api.operator import OperatorContext, Output, OutputTag
from flowrun.api.window_function import Window
from flowrun.core.schema import Field
from flowrun.errors import DataError, did_you_mean
from flowrun.operators.conformance import check_names, rows_to_columns
from flowrun.operators.process.row_output import RowOutput
from flowrun.operators.process.row_state import ObjectBackend
from flowrun.operators.windows.functions.fired import FiredWindows, Results, Windows
from flowrun.operators.windows.functions.runner import Backend, FunctionSettings, FunctionTime, RunnerBase


class RowWindowRunner(RunnerBase):
    """See `WindowFunctionRunner`."""

    def __init__(self, settings: FunctionSettings, context: OperatorContext, output: Output) -> None:
        super().__init__(settings, context, output)
        self._of_keys: ObjectBackend | None = None
        self._of_windows: ObjectBackend | None = None
        self._names = frozenset(settings.output_schema.names)
        self._sides = {
            name: RowOutput(output, s, f"{self._place}, side output '{name}'", OutputTag(name, s))
            for name, s in settings.side_schemas.items()
        }
        self._sent: list[Mapping[str, Any]] = []
        self._parents: list[int] = []
        self._window_context = _RowWindowContext(self, context.processing_time.now_ms)

    def _backend(self, fields: tuple[Field, ...]) -> ObjectBackend:
        keys = len(self._settings.key_fields)
        return ObjectBackend(self._context, fields, self._place, lambda _timer, _processing: None, keys)

    def _global_backend(self, fields: tuple[Field, ...]) -> Backend:
        self._of_keys = self._backend(fields)
        return self._of_keys

    def _window_backend(self, fields: tuple[Field, ...]) -> Backend:
        self._of_windows = self._backend(fields)
        return self._of_windows

    def call(self, fired: FiredWindows) -> Results:
        """Call `process` for each window."""
        self._tick()
        windows, rows = fired.windows, fired.rows.to_pylist()
        offsets, times = fired.offsets.tolist(), fired.times.to_pylist()
        self._sent, self._parents = [], []
        context, process = self._window_context, self._function.process
        context.current_watermark = windows.watermark
        position = 0
        try:
            for position, (key, window) in enumerate(self._each(windows)):
                context.window, context.position, context.time = window, position, times[position]
                returned = process(key, context, rows[offsets[position] : offsets[position + 1]])
                if returned is not None:
                    self._take(returned, position)
            columns = rows_to_columns(self._sent, self._settings.output_schema, self._place)
            for side in self._sides.values():
                side.flush()
        except Exception as error:
            if isinstance(error, DataError) and error.row is not None and error.row < len(self._parents):
                position = self._parents[error.row]
            self._fail(error, "process", windows.between(position, position + 1))
        parents = np.array(self._parents, np.int64)
        self._sent, self._parents = [], []
        return Results(columns, parents)

    def _each(self, windows: Windows) -> Iterable[tuple[tuple[Any, ...], Window]]:
        """(key, window) of each window, with the handles of states there."""
        count = len(windows)
        columns = [k.to_pylist() for k in windows.keys]
        keys: list[tuple[Any, ...]] = list(zip(*columns, strict=True)) if columns else [()] * count
        stored = owners = keys
        if self._of_keys is not None and columns:
            stored = self._of_keys.keys.tuples(list(windows.keys))
        if self._of_windows is not None:
            owners = self._of_windows.keys.tuples([*windows.keys, *windows.bounds])
        bounds = zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)
        for key, own, owner, (start, end) in zip(keys, stored, owners, bounds, strict=True):
            if self._of_keys is not None:
                self._of_keys.cursor.key = own
            if self._of_windows is not None:
                self._of_windows.cursor.key = owner
            yield key, Window(start, end)

    def _take(self, returned: Any, position: int) -> None:
        if type(returned) is dict or isinstance(returned, Mapping):
            self.send(returned, position)
        elif isinstance(returned, Iterable) and not isinstance(returned, (str, bytes)):
            for row in returned:
                self.send(row, position)
        else:
            raise DataError(
                f"{self._place} must return nothing, a row (a dict) or an iterable of rows, got {type(returned).__name__}"
            )

    def send(self, row: Any, position: int) -> None:
        """Collect a row of the window at a position.

        Raises:
            DataError: it is no mapping with the declared columns.
        """
        if type(row) is not dict and not isinstance(row, Mapping):
            given = "nothing (None)" if row is None else type(row).__name__
            raise DataError(f"{self._place} must give rows as dicts, got {given}")
        if row.keys() != self._names:
            check_names(row, self._settings.output_schema, self._place)
        self._sent.append(row)
        self._parents.append(position)

    def side(self, name: str, row: Mapping[str, Any], time: int | None) -> None:
        """Collect a row of a side output.

        Raises:
            DataError: there is none of this name.
        """
        side = self._sides.get(name)
        if side is None:
            raise DataError(
                f"{self._place} has no side output '{name}'",
                hint=did_you_mean(name, self._sides) or "declare it in side_outputs",
            )
        side.add(row, time, None, None)

    def clear(self, windows: Windows) -> None:
        """Call `clear` for each window, and forget its state."""
        self._tick()
        context = self._window_context
        context.current_watermark = windows.watermark
        position = 0
        try:
            context.position, context.time = -1, None
            for position, (_, window) in enumerate(self._each(windows)):  # noqa: B007  # where an error came from
                context.window = window
                if self._settings.loaded.clears:
                    self._function.clear(context)
                for handle in self.window_handles.values():
                    handle.clear()
        except Exception as error:
            self._fail(error, "clear", windows.between(position, position + 1))


class _RowWindowContext(FunctionTime):
    """See `WindowContext`."""

    def __init__(self, runner: RowWindowRunner, now: Any) -> None:
        super().__init__(runner, now)
        self._runner = runner
        self.window = Window(0, 0)
        self.position = -1
        self.time: int | None = None

    def collect(self, row: Mapping[str, Any]) -> None:
        self._check_firing()
        self._runner.send(row, self.position)

    def side_output(self, name: str, row: Mapping[str, Any]) -> None:
        self._check_firing()
        self._runner.side(name, row, self.time)

    def _check_firing(self) -> None:
        if self.position < 0:
            raise DataError("rows cannot be sent while a window is cleared", hint="send them from process")
