"""Window aggregations: which operator does them, and what stands around it (local aggregation, the shuffle by key)."""

from __future__ import annotations

from flowrun.api.operator import ChainingStrategy, OperatorSpec, OutputTag
from flowrun.graph.transformation import (
    OneInputTransformation,
    Transformation,
)
from flowrun.lowering.aggregate_calls import bound_aggregate
from flowrun.lowering.aligned_slices import aligned_slices
from flowrun.lowering.keyed import by_key, keyed, producing_parallelism
from flowrun.operators.timed.assigners import AlignedSlices
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.operators.windows.slices.factories import (
    LocalSliceAggregateFactory,
    SliceWindowFactory,
    local_aggregation_applies,
)
from flowrun.plan import windows
from flowrun.plan.nodes import Settings, WindowAggregate


def lower_window(node: WindowAggregate, source: Transformation, settings: Settings) -> Transformation:
    """The transformation of an aggregation whose input has been prepared (see `window_inputs`).

    Args:
        node: aggregates read columns only.
        source: what `node.input` became.
        settings: of the pipeline.
    """
    return _WindowLowering(node, source, settings).lower()


class _WindowLowering:
    def __init__(self, node: WindowAggregate, source: Transformation, settings: Settings) -> None:
        self._node = node
        self._source = source
        self._settings = settings
        self._aggregates = tuple(bound_aggregate(call) for call in node.aggregates)
        self._domain = node.domain
        self._null_keys = node.null_keys
        self._late_tag = OutputTag(node.late_tag, node.input.schema) if node.late_tag is not None else None

    def lower(self) -> Transformation:
        """The window's transformation, and behind it that of its output mode, if it has one."""
        node, mode, results = self._node, self._node.output_mode, self._windows()
        if mode is None:
            return results
        from flowrun.operators.windows.output_modes.factories import OutputModeFactory  # few windows have a mode

        window, keys, hints = node.window, tuple(range(len(node.keys))), node.hints
        merging = isinstance(window, windows.SessionWindow) or (
            isinstance(window, windows.CustomWindow) and window.merges
        )
        name = f"{self._name} ({mode.value})"
        return OneInputTransformation(
            name=name,
            schema=node.schema,
            uid=f"{hints.stable_id}:mode" if hints.stable_id else None,
            parallelism=hints.parallelism if keys else 1,
            slot_sharing_group=hints.slot_sharing_group,
            chaining=None if hints.chaining else ChainingStrategy.NEVER,
            factory=OutputModeFactory(
                mode, len(keys), node.schema, merging, node.allowed_lateness_ms, windows.window_zone(window)
            ),
            input=by_key(results, keys, name),
            state_keys=keys,
        )

    def _windows(self) -> Transformation:
        """The window's transformation over the shuffled, possibly pre-aggregated input."""
        node, window = self._node, self._node.window
        special = node.trigger is not None or node.evictor is not None
        if special or isinstance(window, windows.CountWindow | windows.GlobalWindow | windows.CustomWindow):
            # Imported here: triggers, evictors and count windows are much code, and few pipelines need them.
            from flowrun.lowering.general_windows import general_factory

            return self._keyed(general_factory(node, self._aggregates, self._late_tag), self._source, node.keys)
        return (
            self._session(window)
            if isinstance(window, windows.SessionWindow)
            else self._aligned(aligned_slices(window))
        )

    # -- fast paths -------------------------------------------------------------------------------------------------

    def _aligned(self, slices: AlignedSlices) -> Transformation:
        node = self._node
        local = self._pre_aggregates()
        source, keys = self._source, node.keys
        if local:
            factory = LocalSliceAggregateFactory(
                keys=node.keys,
                aggregates=self._aggregates,
                assigner=slices,
                input_schema=node.input.schema,
                null_keys=self._null_keys,
                time_zone=windows.window_zone(node.window),
            )
            source = self._local(factory)
            keys = tuple(range(len(node.keys)))
        window = SliceWindowFactory(
            keys=node.keys,
            aggregates=self._aggregates,
            assigner=slices,
            input_schema=node.input.schema,
            output_schema=node.schema,
            allowed_lateness_ms=node.allowed_lateness_ms,
            late_tag=self._late_tag,
            domain=self._domain,
            null_keys=self._null_keys,
            partial_input=local,
            time_zone=windows.window_zone(node.window),
        )
        return self._keyed(window, source, keys)

    def _session(self, window: windows.SessionWindow) -> Transformation:
        node = self._node
        factory = SessionWindowFactory(
            keys=node.keys,
            aggregates=self._aggregates,
            gap_ms=window.gap_ms,
            input_schema=node.input.schema,
            output_schema=node.schema,
            allowed_lateness_ms=node.allowed_lateness_ms,
            late_tag=self._late_tag,
            domain=self._domain,
            null_keys=self._null_keys,
            time_zone=window.time_zone,
        )
        return self._keyed(factory, self._source, node.keys)

    # -- around the window ------------------------------------------------------------------------------------------

    def _pre_aggregates(self) -> bool:
        """Whether rows are aggregated before the shuffle, too: where results stay the same.

        That does not depend on the parallelism: a savepoint must find its operators again at another one.
        """
        if not self._settings.local_aggregation:
            return False
        return local_aggregation_applies(
            self._aggregates,
            domain=self._domain,
            late_tag=self._late_tag,
            allowed_lateness_ms=self._node.allowed_lateness_ms,
        )

    def _local(self, factory: LocalSliceAggregateFactory) -> Transformation:
        """The pre-aggregation, in the task of the input."""
        hints = self._node.hints
        return OneInputTransformation(
            name=f"{self._name} (local)",
            schema=factory.output_schema,
            uid=f"{hints.stable_id}:local" if hints.stable_id else None,
            parallelism=producing_parallelism(self._source, self._settings.parallelism),
            slot_sharing_group=hints.slot_sharing_group,
            chaining=None if hints.chaining else ChainingStrategy.NEVER,
            factory=factory,
            input=self._source,
        )

    def _keyed(self, factory: OperatorSpec, source: Transformation, keys: tuple[int, ...]) -> Transformation:
        """The window operator behind a shuffle by its keys; without keys it runs alone."""
        node = self._node
        return keyed(node, factory, source, keys, self._name)

    @property
    def _name(self) -> str:
        return self._node.hints.name or "window"
