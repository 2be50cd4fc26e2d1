"""Windows on their way into an aggregation or a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.api import windowing
from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OutputTag
from flowrun.api.window_function import ProcessWindowFunction
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys, TimeDomain
from flowrun.datastream.window_aggregation import WindowAggregation
from flowrun.datastream.windows import AnyWindows, NamedDeltaEvictor, timed_windows
from flowrun.errors import PipelineError
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
        return self._stream.derived(transformation, () if late is None else (late,))

    def process(
        self,
        function: ProcessWindowFunction | type[ProcessWindowFunction] | str,
        schema: Schema | None = None,
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
            self._stream.schema if schema is None else schema,
            tuple(side_outputs),
            name,
        )
        return self._stream.derived(transformation, (*side_outputs, *(() if late is None else (late,))))

    apply = process
