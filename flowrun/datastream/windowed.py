"""Windows on their way into an aggregation or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowrun.api import windowing
from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OutputTag
from flowrun.api.process_function import AggregateFunction
from flowrun.api.window_function import ProcessWindowFunction
from flowrun.core.semantics import NullKeys, OutputMode, TimeDomain
from flowrun.datastream.functions import recipe_of
from flowrun.datastream.schemas import SchemaLike, as_schema
from flowrun.datastream.window_aggregation import WindowAggregation
from flowrun.datastream.window_results import AggregatedRows, ReducedRows, inner_function, named_aggregate
from flowrun.datastream.windows import (
    AnyWindows,
    CountEvictor,
    CountTrigger,
    GlobalWindows,
    NamedDeltaEvictor,
    PurgingTrigger,
    timed_windows,
)
from flowrun.errors import PipelineError, did_you_mean
from flowrun.operators.function_recipe import class_recipe
from flowrun.operators.windows.general.evictors import Evictor
from flowrun.operators.windows.general.trigger_contract import Trigger
from flowrun.operators.windows.general.user_evictors import CustomEvictor
from flowrun.operators.windows.general.user_triggers import as_trigger

if TYPE_CHECKING:
    from flowrun.datastream.stream import DataStream


class WindowedStream:
    """Rows by key and window, waiting for an aggregation or a function. Settings return the same object."""

    def __init__(
        self,
        stream: DataStream,
        keys: tuple[int, ...],
        windows: AnyWindows,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self._stream = stream
        self._output_mode: OutputMode | None = None
        timed = timed_windows(windows, arguments or {})
        self._aggregation = WindowAggregation(
            stream.schema,
            keys,
            timed.windows,
            domain=timed.domain,
            pre_aggregates=stream.environment.local_aggregation,
        )

    def allowed_lateness(self, lateness_ms: int) -> WindowedStream:
        """Keep windows for so long (event time) after they fired; late rows fire them again."""
        if lateness_ms < 0:
            raise PipelineError.of(f"allowed_lateness must not be negative, got {lateness_ms} ms")
        self._aggregation = replace(self._aggregation, allowed_lateness_ms=lateness_ms)
        return self

    def side_output_late_data(self, tag: str) -> WindowedStream:
        """Send rows that are too late to a side output: `result.get_side_output(tag)`."""
        self._aggregation = replace(self._aggregation, late_tag=OutputTag(tag, self._stream.schema))
        return self

    def in_processing_time(self) -> WindowedStream:
        """Let the machine's clock assign rows to windows and close them."""
        self._aggregation = replace(self._aggregation, domain=TimeDomain.PROCESSING)
        return self

    def output_mode(self, mode: OutputMode | str) -> WindowedStream:
        """What leaves windows that fire more than once, of `aggregate` and what is made of it.

        Args:
            mode: `append`: each window's last result, once it cannot fire any more. `update`: the first result of a window, then how each
                other one changes it; when sessions merge, the results of those that became one are deleted. `complete`: all windows'
                results, whenever event time has come further and one of them has changed; they are kept for ever. Without a mode each
                firing's result is a row by itself.

        Raises:
            PipelineError: there is no such mode.
        """
        try:
            self._output_mode = OutputMode(mode)
        except ValueError:
            raise PipelineError.of(
                f"output_mode: there is no mode '{mode}'", did_you_mean(str(mode), [m.value for m in OutputMode])
            ) from None
        return self

    def null_keys(self, policy: NullKeys) -> WindowedStream:
        """What happens to rows whose key is NULL; by default they form a group."""
        self._aggregation = replace(self._aggregation, null_keys=policy)
        return self

    def trigger(
        self,
        trigger: Trigger | windowing.Trigger | type[windowing.Trigger] | str,
        *,
        arguments: Mapping[str, object] | None = None,
    ) -> WindowedStream:
        """Fire when a trigger says so, instead of at the end of windows.

        Args:
            trigger: `CountTrigger.of(5)`, for example, or a user's trigger (`flowrun.api.windowing`), its class or `module:Class`.
            arguments: of the class, by name.
        """
        bound = as_trigger(trigger, arguments).bound(self._stream.schema)
        self._aggregation = replace(self._aggregation, trigger=bound)
        return self

    def evictor(
        self,
        evictor: Evictor | NamedDeltaEvictor | windowing.Evictor | type[windowing.Evictor] | str,
        *,
        arguments: Mapping[str, object] | None = None,
    ) -> WindowedStream:
        """Drop rows before or after windows fire.

        Args:
            evictor: `CountEvictor.of(5)`, for example, or a user's evictor (`flowrun.api.windowing`), its class or `module:Class`.
            arguments: of the class, by name.
        """
        bound: Evictor | CustomEvictor
        if isinstance(evictor, NamedDeltaEvictor):
            bound = evictor.bound(self._stream.schema)
        elif isinstance(evictor, (str, type, windowing.Evictor)):
            bound = CustomEvictor(class_recipe(evictor, windowing.Evictor, arguments or {}, "evictor"))
            bound.check()
        else:
            bound = evictor
        self._aggregation = replace(self._aggregation, evictor=bound)
        return self

    def aggregate(self, *aggregates: BoundAggregate, name: str = "window") -> DataStream:
        """One row a key and window: keys, window_start, window_end (unless the window is global), aggregates.

        With aligned windows rows are aggregated before the shuffle too, where that cannot change the result.
        """
        transformation = self._aggregation.transformation(self._stream.transformation, aggregates, name)
        late = self._aggregation.late_tag
        results = self._stream.derived(transformation, () if late is None else (late,))
        if self._output_mode is None:
            return results
        moded = self._stream.derived(self._aggregation.in_mode(transformation, self._output_mode, name))
        moded.get_side_output = results.get_side_output  # type: ignore[method-assign]  # late rows leave before
        return moded

    def sum(self, column: str, *, name: str = "sum") -> DataStream:
        """Keys, bounds, and the sum of a column."""
        return self.aggregate(named_aggregate("SUM", self._stream.schema, column, name), name=name)

    def min(self, column: str, *, name: str = "min") -> DataStream:
        """Keys, bounds, and the least value of a column."""
        return self.aggregate(named_aggregate("MIN", self._stream.schema, column, name), name=name)

    def max(self, column: str, *, name: str = "max") -> DataStream:
        """Keys, bounds, and the greatest value of a column."""
        return self.aggregate(named_aggregate("MAX", self._stream.schema, column, name), name=name)

    def count(self, *, name: str = "count") -> DataStream:
        """Keys, bounds, and the number of rows as `count`."""
        return self.aggregate(named_aggregate("COUNT", self._stream.schema, None, name), name=name)

    def reduce(
        self,
        function: Callable[[Any, Any], Any] | str,
        window_function: ProcessWindowFunction | type[ProcessWindowFunction] | None = None,
        schema: SchemaLike | None = None,
        *,
        name: str = "reduce",
    ) -> DataStream:
        """What `function(reduced, row)` makes of the rows of a window, one after the other; the rows are kept until it fires.

        Args:
            function: gets two rows and gives one.
            window_function: is called with a list of that one row instead of all.
            schema: the columns that `window_function` sends.
            name: of the operator.
        """
        reduced = ReducedRows(recipe_of(function, name, ("reduce",)), inner_function(window_function, name))
        return self.process(reduced, schema, name=name)

    def aggregate_rows(
        self,
        function: AggregateFunction[Any, Any, Any] | type[AggregateFunction[Any, Any, Any]],
        schema: SchemaLike,
        window_function: ProcessWindowFunction | type[ProcessWindowFunction] | None = None,
        *,
        name: str = "aggregate",
    ) -> DataStream:
        """The result of an `AggregateFunction` over the rows of a window, which are kept until it fires: a row with columns as `schema`.

        With a `window_function` that is called with a list of the one result, and `schema` has the columns that it sends.
        """
        aggregated = AggregatedRows(recipe_of(function, name), inner_function(window_function, name))
        return self.process(aggregated, schema, name=name)

    def process(
        self,
        function: ProcessWindowFunction | type[ProcessWindowFunction] | str,
        schema: SchemaLike | None = None,
        *,
        name: str = "window",
        side_outputs: Sequence[OutputTag] = (),
        arguments: Mapping[str, object] | None = None,
    ) -> DataStream:
        """Call a window function for windows that fire; see `flowrun.api.window_function`.

        Args:
            function: a window function (each subtask gets a copy), its class or `module:Class`.
            schema: the columns that it sends; None: those of this stream.
            name: of the operator.
            side_outputs: the tags that it may send to.
            arguments: of the class, by name.

        Raises:
            PipelineError: the function does not keep to the rules, or trigger and windows do not go together.
        """
        if self._output_mode is not None:
            raise PipelineError.of(
                f"{name}: output modes are for aggregates, which have one result a window", "leave output_mode out"
            )
        late = self._aggregation.late_tag
        twice = next((t.name for t in side_outputs if late is not None and t.name == late.name), None)
        if twice is not None:
            raise PipelineError.of(
                f"{name}: '{twice}' is the output of late rows already", "name the side output otherwise"
            )
        recipe = class_recipe(function, ProcessWindowFunction, arguments or {}, name)
        transformation = self._aggregation.function_transformation(
            self._stream.transformation,
            recipe,
            self._stream.schema if schema is None else as_schema(schema, name),
            tuple(side_outputs),
            name,
        )
        return self._stream.derived(transformation, (*side_outputs, *(() if late is None else (late,))))

    apply = process


def count_windows(stream: DataStream, keys: tuple[int, ...], size: int, slide: int | None) -> WindowedStream:
    """Windows of rows, as Flink makes them of the global window.

    Raises:
        PipelineError: a number is not positive.
    """
    if size <= 0 or (slide is not None and slide <= 0):
        raise PipelineError.of(f"count_window: size and slide must be positive, got {size} and {slide}")
    windowed = WindowedStream(stream, keys, GlobalWindows.create())
    if slide is None or slide == size:
        return windowed.trigger(PurgingTrigger.of(CountTrigger.of(size)))
    return windowed.trigger(CountTrigger.of(slide)).evictor(CountEvictor.of(size))
