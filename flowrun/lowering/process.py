"""Process functions: their operator, behind a shuffle by key if they have keys."""

from __future__ import annotations

from flowrun.api.operator import ChainingStrategy, OutputTag
from flowrun.core.row_errors import RowErrors
from flowrun.graph.partitioner import GlobalPartitioner, KeyGroupPartitioner
from flowrun.graph.transformation import OneInputTransformation, PartitionTransformation, Transformation
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import ProcessFunctionFactory
from flowrun.plan.nodes import FunctionWindows, Process


def lower_process(node: Process, source: Transformation, errors: RowErrors) -> Transformation:
    """The transformation of a process function; `source` is what `node.input` became.

    Rows that it fails on are treated as `errors` says.
    """
    name, hints = node.hints.name or "process", node.hints
    if node.keys is not None:
        source = PartitionTransformation(
            name=f"{name} (by key)",
            schema=source.schema,
            input=source,
            partitioner=KeyGroupPartitioner(node.keys),
        )
    factory = ProcessFunctionFactory(
        function=FunctionRecipe(node.function, dict(node.arguments), node.search_path),
        input_schema=node.input.schema,
        output_schema=node.schema if node.called is None else node.called.columns,
        keys=node.keys,
        null_keys=node.null_keys,
        side_outputs=tuple(OutputTag(tag, schema) for tag, schema in node.side_outputs.items()),
        name=name,
        event_time=node.input.event_time,
        leading=() if node.called is None else node.called.leading,
        sent_schema=None if node.called is None else node.schema,
        errors=errors,
        rowtime=node.called is not None and node.called.time is not None,
    )
    return OneInputTransformation(
        name=name,
        schema=node.schema,
        uid=hints.stable_id,
        parallelism=hints.parallelism,
        slot_sharing_group=hints.slot_sharing_group,
        chaining=None if hints.chaining else ChainingStrategy.NEVER,
        factory=factory,
        input=source,
        state_keys=node.keys,
    )


def lower_window_process(node: Process, windows: FunctionWindows, source: Transformation) -> Transformation:
    """The transformation of a window function, behind a shuffle by its keys; without keys it runs alone.

    Raises:
        UnsupportedPlanError: windows, trigger and evictor do not go together.
    """
    from flowrun.lowering.general_windows import window_function_factory  # much code, which few pipelines need

    keys, name, hints = node.keys or (), node.hints.name or "process", node.hints
    return OneInputTransformation(
        name=name,
        schema=node.schema,
        uid=hints.stable_id,
        parallelism=hints.parallelism if keys else 1,
        slot_sharing_group=hints.slot_sharing_group,
        chaining=None if hints.chaining else ChainingStrategy.NEVER,
        factory=window_function_factory(node, windows, name),
        input=PartitionTransformation(
            name=f"{name} (by key)" if keys else f"{name} (all)",
            schema=source.schema,
            input=source,
            partitioner=KeyGroupPartitioner(keys) if keys else GlobalPartitioner(),
        ),
        state_keys=keys,
    )
