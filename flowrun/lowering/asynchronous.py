"""Asynchronous functions: their operator, with the node's limits and repetitions."""

from __future__ import annotations

from flowrun.api.async_function import AsyncRetryStrategy
from flowrun.api.operator import OutputTag
from flowrun.core.row_errors import RowErrors
from flowrun.errors import PipelineError
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.keyed import with_hints
from flowrun.operators.asynchronous.factories import AsyncFunctionFactory, WaitMode
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.plan.nodes import AsyncMap


def lower_async(node: AsyncMap, source: Transformation, errors: RowErrors, *, changing: bool) -> Transformation:
    """The transformation of an asynchronous function.

    Args:
        node: of the plan.
        source: what `node.input` became.
        errors: what becomes of rows that it fails on.
        changing: whether its input has rows that change others.

    Raises:
        PipelineError: rows that change others would leave without order.
    """
    name, hints, retry = node.hints.name or "async", node.hints, node.retry
    if changing and not node.ordered:
        raise PipelineError.of(
            f"'{name}' reads rows that change others, which cannot leave without order: the last change would not be the last any more",
            "mode: ordered",
            hints.location,
        )
    factory = AsyncFunctionFactory(
        function=FunctionRecipe(node.function, dict(node.arguments), node.search_path),
        input_schema=node.input.schema,
        output_schema=node.schema,
        mode=WaitMode.ORDERED if node.ordered else WaitMode.UNORDERED,
        timeout_ms=node.timeout_ms,
        capacity=node.capacity,
        retry=None
        if retry is None
        else AsyncRetryStrategy(retry.max_attempts, retry.delay_ms, retry.multiplier, retry.max_delay_ms),
        repeats_result=None if retry is None else _predicate(retry.result_predicate, node),
        repeats_exception=None if retry is None else _predicate(retry.exception_predicate, node),
        call_rows=node.call_rows,
        side_outputs=tuple(OutputTag(tag, schema) for tag, schema in node.side_outputs.items()),
        name=name,
        errors=errors,
    )
    made = OneInputTransformation(
        name=name,
        schema=node.schema,
        factory=factory,
        input=source,
    )
    return with_hints(made, node.hints)


def _predicate(reference: str | None, node: AsyncMap) -> FunctionRecipe | None:
    return None if reference is None else FunctionRecipe(reference, search_path=node.search_path)
