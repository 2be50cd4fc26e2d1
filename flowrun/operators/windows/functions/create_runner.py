"""From a loaded window function to what calls it."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.api.operator import OperatorContext, Output, OutputTag
from flowrun.core.schema import Schema
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.windows.functions.batches import BatchWindowRunner
from flowrun.operators.windows.functions.fired import WindowFunctionRunner
from flowrun.operators.windows.functions.loading import load_window_function
from flowrun.operators.windows.functions.rows import RowWindowRunner
from flowrun.operators.windows.functions.runner import FunctionSettings


def window_function_runner(
    function: FunctionRecipe,
    name: str,
    keys: Sequence[int],
    schemas: tuple[Schema, Schema],
    side_outputs: Sequence[OutputTag],
    context: OperatorContext,
    output: Output,
    *,
    merging: bool,
) -> WindowFunctionRunner:
    """What calls a function of its own, made here, for one subtask.

    Args:
        function: the recipe.
        name: of the step, in messages.
        keys: positions of the key columns.
        schemas: columns of the rows of windows, and of what the function sends.
        side_outputs: where else it may send rows.
        context: of the operator.
        output: of the operator.
        merging: whether its windows merge.

    Raises:
        PipelineError: the function cannot be made.
    """
    loaded = load_window_function(function, merging=merging)
    settings = FunctionSettings(
        loaded=loaded,
        place=f"window function '{function.reference}' of '{name}'",
        key_fields=tuple(schemas[0].fields[k] for k in keys),
        input_schema=schemas[0],
        output_schema=schemas[1],
        side_schemas={tag.name: tag.schema for tag in side_outputs},
    )
    kind = BatchWindowRunner if loaded.batches else RowWindowRunner
    return kind(settings, context, output)
