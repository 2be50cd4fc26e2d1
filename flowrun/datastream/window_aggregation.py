"""Windows of the programmatic API: their operators, behind a shuffle by key."""

from __future__ import annotations

from dataclasses import replace

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OperatorSpec, OutputTag
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys, OutputMode, TimeDomain
from flowrun.core.types import timestamp
from flowrun.datastream.windows import SessionGap, Windows
from flowrun.errors import PipelineError
from flowrun.graph.partitioner import GlobalPartitioner, KeyGroupPartitioner
from flowrun.graph.transformation import OneInputTransformation, PartitionTransformation, Transformation
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.windows.general.evictors import Evictor
from flowrun.operators.windows.general.factories import GeneralWindowFactory, GlobalAssigner, SessionAssigner
from flowrun.operators.windows.general.trigger_contract import Trigger
from flowrun.operators.windows.general.triggers import PurgingTrigger
from flowrun.operators.windows.general.user_assigners import CustomAssigner
from flowrun.operators.windows.general.user_evictors import CustomEvictor
from flowrun.operators.windows.output_modes.factories import OutputModeFactory
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.operators.windows.slices.factories import (
    LocalSliceAggregateFactory,
    SliceWindowFactory,
    local_aggregation_applies,
)


@record
class WindowAggregation:
    """An aggregation by key and window, but for the aggregates.

    Attributes:
        schema: columns of the rows.
        keys: positions of the key columns; empty: all rows are one group, in one subtask.
        windows: which.
        allowed_lateness_ms: for so long (event time) windows are kept after they fired.
        late_tag: where rows go that are too late; None: nowhere.
        domain: which time assigns rows to windows and closes them.
        null_keys: what happens to rows whose key is NULL.
        pre_aggregates: whether rows may be aggregated before the shuffle, too.
        trigger: when windows fire; None: the default.
        evictor: which rows they drop.
    """

    schema: Schema
    keys: tuple[int, ...]
    windows: Windows
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    domain: TimeDomain = TimeDomain.EVENT
    null_keys: NullKeys = NullKeys.GROUP
    pre_aggregates: bool = True
    trigger: Trigger | None = None
    evictor: Evictor | CustomEvictor | None = None

    def transformation(
        self, upstream: Transformation, aggregates: tuple[BoundAggregate, ...], name: str
    ) -> Transformation:
        """One row a key and window of `upstream`: keys, window_start, window_end, aggregates.

        Raises:
            PipelineError: two columns would have one name.
        """
        schema = self._output_schema(aggregates)
        keys, factory = self.keys, self._factory(aggregates, schema)
        if isinstance(factory, SliceWindowFactory) and self._applies_locally(aggregates):
            local = LocalSliceAggregateFactory(
                keys, aggregates, factory.assigner, self.schema, null_keys=self.null_keys
            )
            upstream = OneInputTransformation(
                name=f"local {name}", schema=local.output_schema, factory=local, input=upstream
            )
            keys, factory = tuple(range(len(keys))), replace(factory, partial_input=True)
        return OneInputTransformation(
            name=name,
            schema=schema,
            factory=factory,
            input=_partitioned(upstream, keys),
            state_keys=keys,
            parallelism=None if keys else 1,
        )

    def in_mode(self, windows: Transformation, mode: OutputMode, name: str) -> Transformation:
        """The results of `transformation` in an output mode, by key again.

        Raises:
            PipelineError: windows have no bounds, go by the clock, or forget their rows when they fire.
        """
        wrong = None
        if isinstance(self.windows, GlobalAssigner):
            wrong = "the global window has no end"
        elif self.domain is TimeDomain.PROCESSING:
            wrong = "windows of processing time are never final"
        elif isinstance(self.trigger, PurgingTrigger):
            wrong = "the trigger lets windows forget their rows"
        if wrong is not None:
            raise PipelineError.of(f"{name}: there is no output mode '{mode.value}': {wrong}", "leave output_mode out")
        merging = isinstance(self.windows, SessionGap) or (
            isinstance(self.windows, CustomAssigner) and self.windows.assigner.merging
        )
        keys = tuple(range(len(self.keys)))
        return OneInputTransformation(
            name=f"{name} ({mode.value})",
            schema=windows.schema,
            factory=OutputModeFactory(mode, len(keys), windows.schema, merging, self.allowed_lateness_ms),
            input=_partitioned(windows, keys),
            state_keys=keys,
            parallelism=None if keys else 1,
        )

    def function_transformation(
        self,
        upstream: Transformation,
        function: FunctionRecipe,
        schema: Schema,
        side_outputs: tuple[OutputTag, ...],
        name: str,
    ) -> Transformation:
        """What a window function sends for the windows of `upstream`.

        Raises:
            PipelineError: the function does not keep to the rules, or trigger and windows do not go together.
        """
        factory = self._general((), schema, function, side_outputs, name)
        factory.loaded_function  # noqa: B018  # a look at it
        return OneInputTransformation(
            name=name,
            schema=schema,
            factory=factory,
            input=_partitioned(upstream, self.keys),
            state_keys=self.keys,
            parallelism=None if self.keys else 1,
        )

    def _general(
        self,
        aggregates: tuple[BoundAggregate, ...],
        schema: Schema,
        function: FunctionRecipe | None = None,
        side_outputs: tuple[OutputTag, ...] = (),
        name: str = "window",
    ) -> GeneralWindowFactory:
        windows = self.windows
        try:
            return GeneralWindowFactory(
                keys=self.keys,
                aggregates=aggregates,
                assigner=SessionAssigner(windows.gap_ms) if isinstance(windows, SessionGap) else windows,
                input_schema=self.schema,
                output_schema=schema,
                evictor=self.evictor,
                trigger=self.trigger,
                allowed_lateness_ms=self.allowed_lateness_ms,
                late_tag=self.late_tag,
                domain=self.domain,
                null_keys=self.null_keys,
                function=function,
                side_outputs=side_outputs,
                name=name,
            )
        except ValueError as error:
            raise PipelineError.of(f"{name}: {error}", "use another trigger, or other windows") from error

    def _output_schema(self, aggregates: tuple[BoundAggregate, ...]) -> Schema:
        keys = tuple(self.schema.fields[k] for k in self.keys)
        names = () if isinstance(self.windows, GlobalAssigner) else ("window_start", "window_end")
        bounds = tuple(Field(n, timestamp(3)) for n in names)
        try:
            return Schema((*keys, *bounds, *(Field(a.name, a.kernel.result) for a in aggregates)))
        except ValueError as error:
            raise PipelineError.of(f"window aggregation: {error}", "give each aggregate a name of its own") from None

    def _factory(self, aggregates: tuple[BoundAggregate, ...], schema: Schema) -> OperatorSpec:
        windows = self.windows
        has_own = self.trigger is not None or self.evictor is not None
        if has_own or isinstance(windows, GlobalAssigner | CustomAssigner):
            return self._general(aggregates, schema)
        if isinstance(windows, SessionGap):
            return SessionWindowFactory(
                keys=self.keys,
                aggregates=aggregates,
                gap_ms=windows.gap_ms,
                input_schema=self.schema,
                output_schema=schema,
                allowed_lateness_ms=self.allowed_lateness_ms,
                late_tag=self.late_tag,
                domain=self.domain,
                null_keys=self.null_keys,
            )
        return SliceWindowFactory(
            keys=self.keys,
            aggregates=aggregates,
            assigner=windows,
            input_schema=self.schema,
            output_schema=schema,
            allowed_lateness_ms=self.allowed_lateness_ms,
            late_tag=self.late_tag,
            domain=self.domain,
            null_keys=self.null_keys,
        )

    def _applies_locally(self, aggregates: tuple[BoundAggregate, ...]) -> bool:
        return self.pre_aggregates and local_aggregation_applies(
            aggregates,
            domain=self.domain,
            late_tag=self.late_tag,
            allowed_lateness_ms=self.allowed_lateness_ms,
        )


def _partitioned(upstream: Transformation, keys: tuple[int, ...]) -> Transformation:
    partitioner = KeyGroupPartitioner(keys) if keys else GlobalPartitioner()
    return PartitionTransformation(
        name="key by" if keys else "global", schema=upstream.schema, input=upstream, partitioner=partitioner
    )
