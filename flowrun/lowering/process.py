"""Process functions of one stream and of two: their operator, behind a shuffle by key if they have keys."""

from __future__ import annotations

from flowrun.api.operator import OutputTag
from flowrun.core.row_errors import RowErrors
from flowrun.graph.partitioner import BroadcastPartitioner, GlobalPartitioner, KeyGroupPartitioner
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    Transformation,
    TwoInputTransformation,
)
from flowrun.lowering.keyed import by_key, with_hints
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.factories import CoProcessFunctionFactory, ProcessFunctionFactory
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.plan.co_process import CoProcess
from flowrun.plan.nodes import FunctionWindows, Process


def lower_process(node: Process, source: Transformation, errors: RowErrors) -> Transformation:
    """The transformation of a process function; `source` is what `node.input` became.

    Rows that it fails on are treated as `errors` says.
    """
    name = node.hints.name or "process"
    source = by_key(source, node.keys or (), name)
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
        tables=node.tables,
    )
    made = OneInputTransformation(
        name=name,
        schema=node.schema,
        factory=factory,
        input=source,
        state_keys=node.keys,
    )
    return with_hints(made, node.hints)


def lower_co_process(
    node: CoProcess, left: Transformation, right: Transformation, errors: RowErrors
) -> TwoInputTransformation:
    """The transformation of a function of two streams; `left` and `right` are what its inputs became.

    Rows that it fails on are treated as `errors` says.
    """
    name = node.hints.name or "process"
    factory = CoProcessFunctionFactory(
        function=FunctionRecipe(node.function, dict(node.arguments), node.search_path),
        inputs=FunctionInputs.BROADCAST if node.broadcast else FunctionInputs.TWO,
        input_schemas=(node.left.schema, node.right.schema),
        output_schema=node.schema,
        keys=node.keys,
        null_keys=node.null_keys,
        side_outputs=tuple(OutputTag(tag, schema) for tag, schema in node.side_outputs.items()),
        name=name,
        event_time=node.event_time,
        errors=errors,
        tables=node.tables,
    )
    left_keys, right_keys = node.left_keys, () if node.broadcast else node.right_keys
    if node.broadcast:
        right = PartitionTransformation(
            name=f"{name} (broadcast)", schema=right.schema, input=right, partitioner=BroadcastPartitioner()
        )
    made = TwoInputTransformation(
        name=name,
        schema=node.schema,
        factory=factory,
        left=by_key(left, left_keys or (), f"{name}, left"),
        right=by_key(right, right_keys or (), f"{name}, right"),
        state_keys=None if left_keys is None or right_keys is None else (left_keys, right_keys),
    )
    return with_hints(made, node.hints)


def lower_window_process(node: Process, windows: FunctionWindows, source: Transformation) -> Transformation:
    """The transformation of a window function, behind a shuffle by its keys; without keys it runs alone.

    Raises:
        UnsupportedPlanError: windows, trigger and evictor do not go together.
    """
    from flowrun.lowering.general_windows import window_function_factory  # much code, which few pipelines need

    keys, name = node.keys or (), node.hints.name or "process"
    made = OneInputTransformation(
        name=name,
        schema=node.schema,
        factory=window_function_factory(node, windows, name),
        input=PartitionTransformation(
            name=f"{name} (by key)" if keys else f"{name} (all)",
            schema=source.schema,
            input=source,
            partitioner=KeyGroupPartitioner(keys) if keys else GlobalPartitioner(),
        ),
        state_keys=keys,
    )
    return with_hints(made, node.hints, alone=not keys)
