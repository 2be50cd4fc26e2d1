"""Window functions that are called for all windows that fire together: `process_batch` and `clear_batch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.keyed_state import Values
from flowrun.api.operator import OperatorContext, Output, OutputTag
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.errors import DataError, did_you_mean
from flowrun.operators.conformance import as_record_batch, conform
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.process.column_state import ColumnBackend
from flowrun.operators.process.current import as_column
from flowrun.operators.windows.functions.fired import FiredWindows, Results, Windows, distinct_runs
from flowrun.operators.windows.functions.loading import window_fields
from flowrun.operators.windows.functions.runner import Backend, FunctionSettings, FunctionTime, RunnerBase


class BatchWindowRunner(RunnerBase):
    """See `WindowFunctionRunner`."""

    def __init__(self, settings: FunctionSettings, context: OperatorContext, output: Output) -> None:
        super().__init__(settings, context, output)
        self._of_keys: ColumnBackend | None = None
        self._of_windows: ColumnBackend | None = None
        self._names = [f.name for f in window_fields(settings.key_fields)]
        self._sides = {name: OutputTag(name, s) for name, s in settings.side_schemas.items()}
        self._parts: list[Results] = []
        self._batch_context = _BatchWindowContext(self, context.processing_time.now_ms)

    def _backend(self, fields: tuple[Field, ...]) -> ColumnBackend:
        keys = len(self._settings.key_fields)
        return ColumnBackend(self._context, fields, lambda _slots, _times, _processing: None, keys)

    def _global_backend(self, fields: tuple[Field, ...]) -> Backend:
        self._of_keys = self._backend(fields)
        return self._of_keys

    def _window_backend(self, fields: tuple[Field, ...]) -> Backend:
        self._of_windows = self._backend(fields)
        return self._of_windows

    def call(self, fired: FiredWindows) -> Results:
        """Call `process_batch`: at once if no window (with state of keys, no key) is there twice."""
        parts: list[Results] = []
        for start, stop in self._runs(fired.windows):
            part = fired if stop - start == len(fired.windows) else fired.between(start, stop)
            parts += (Results(r.columns, r.parents + start) for r in self._call(part))
        if len(parts) == 1:
            return parts[0]
        schema = self._settings.output_schema.arrow
        columns = pa.Table.from_batches([p.columns for p in parts], schema).combine_chunks().to_batches()
        parents = np.concatenate([p.parents for p in parts]) if parts else np.zeros(0, np.int64)
        return Results(columns[0] if columns else pa.RecordBatch.from_pylist([], schema), parents)

    def _runs(self, windows: Windows) -> list[tuple[int, int]]:
        keys, fields = list(windows.keys), self._settings.key_fields
        if self._of_keys is None:
            keys, fields = [*keys, *windows.bounds], window_fields(fields)
        if not fields:
            return [(i, i + 1) for i in range(len(windows))]
        located = KeySlots.of(Schema(fields), range(len(fields))).locate(keys, len(windows))
        return distinct_runs(located.local)

    def _call(self, fired: FiredWindows) -> list[Results]:
        self._tick()
        self._locate(fired.windows)
        self._parts = []
        context = self._batch_context
        context.begin(fired)
        try:
            returned = self._function.process_batch(fired.windows.columns(self._names), fired.rows, context)
            if returned is not None:
                rows, parents = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
                self.send(rows, parents, len(fired.windows))
        except Exception as error:
            self._fail(error, "process_batch", fired.windows)
        finally:
            self._release()
            context.end()
        parts, self._parts = self._parts, []
        return parts

    def _locate(self, windows: Windows) -> None:
        if self._of_keys is not None:
            self._of_keys.locate(list(windows.keys), len(windows))
        if self._of_windows is not None:
            self._of_windows.locate([*windows.keys, *windows.bounds], len(windows))

    def _release(self) -> None:
        for backend in (self._of_keys, self._of_windows):
            if backend is not None:
                backend.current.clear()

    def send(self, rows: Any, parents: Values | None, windows: int) -> None:
        """Collect rows.

        Raises:
            DataError: they have other columns, or it is not clear of which windows they are.
        """
        columns, positions = self._checked(rows, self._settings.output_schema, self._place, parents, windows)
        self._parts.append(Results(columns, positions))

    def side(self, name: str, rows: Any, parents: Values | None, fired: FiredWindows) -> None:
        """Send rows to a side output.

        Raises:
            DataError: there is none of this name, or as `send`.
        """
        tag = self._sides.get(name)
        if tag is None:
            raise DataError(
                f"{self._place} has no side output '{name}'",
                hint=did_you_mean(name, self._sides) or "declare it in side_outputs",
            )
        place = f"{self._place}, side output '{name}'"
        columns, positions = self._checked(rows, tag.schema, place, parents, len(fired.windows))
        times = None if fired.times.null_count else fired.times.take(pa.array(positions))
        if columns.num_rows:
            self._output.emit_side(tag, RecordBatch(columns, times))

    def _checked(
        self, rows: Any, schema: Schema, place: str, parents: Values | None, windows: int
    ) -> tuple[pa.RecordBatch, Integers]:
        columns = conform(as_record_batch(rows, place), schema, place)
        if parents is None:
            if columns.num_rows != windows:
                raise DataError(
                    f"{place} got {windows} windows and sent {columns.num_rows} rows without saying of which they are",
                    hint="give parents: for each row the position of its window, e.g. context.window_index",
                )
            return columns, np.arange(windows)
        given = as_column(parents, BIGINT, f"{place}: parents", columns.num_rows)
        positions: Integers = given.to_numpy(zero_copy_only=False)
        if len(positions) and (given.null_count or positions.min() < 0 or positions.max() >= windows):
            raise DataError(
                f"{place}: parents must be positions from 0 to {windows - 1}", hint="they are those of the windows"
            )
        return columns, positions

    def clear(self, windows: Windows) -> None:
        """Call `clear_batch`, and forget the windows' state."""
        self._tick()
        for start, stop in self._runs(windows):
            part = windows.between(start, stop)
            self._locate(part)
            self._batch_context.current_watermark = windows.watermark
            try:
                if self._settings.loaded.clears:
                    self._function.clear_batch(part.columns(self._names), self._batch_context)
                for handle in self.window_handles.values():
                    handle.clear()
            except Exception as error:
                self._fail(error, "clear_batch", part)
            finally:
                self._release()


class _BatchWindowContext(FunctionTime):
    """See `WindowBatchContext`."""

    def __init__(self, runner: BatchWindowRunner, now: Callable[[], int]) -> None:
        super().__init__(runner, now)
        self._runner = runner
        self._fired: FiredWindows | None = None

    def begin(self, fired: FiredWindows) -> None:
        """Windows fire."""
        self._fired = fired
        self.current_watermark = fired.windows.watermark

    def end(self) -> None:
        """No windows fire any more."""
        self._fired = None

    def _firing(self) -> FiredWindows:
        if self._fired is None:
            raise DataError("no windows fire: neither rows nor outputs can be used", hint="use them in process_batch")
        return self._fired

    @property
    def offsets(self) -> Integers:
        return self._firing().offsets

    @property
    def window_index(self) -> Integers:
        offsets = self._firing().offsets
        return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    def collect(self, rows: pa.RecordBatch, parents: Values | None = None) -> None:
        self._runner.send(rows, parents, len(self._firing().windows))

    def side_output(self, name: str, rows: pa.RecordBatch, parents: Values | None = None) -> None:
        self._runner.side(name, rows, parents, self._firing())
