"""From the recipe of a process operator to the operator, with a function of its own."""

from __future__ import annotations

from flowrun.operators.process.added_columns import AddedColumns
from flowrun.operators.process.batches import BatchProcessOperator
from flowrun.operators.process.factories import CoProcessFunctionFactory, ProcessFunctionFactory
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.operators.process.loading import load_process_function
from flowrun.operators.process.operator import ProcessInput, ProcessOperator, ProcessSettings
from flowrun.operators.process.rows import RowProcessOperator


def process_operator(factory: ProcessFunctionFactory) -> ProcessOperator:
    """The operator of one stream for the form of the function, which is made here.

    Raises:
        PipelineError: the function cannot be made.
    """
    sent, leading = factory.sent_schema, factory.leading
    return _operator(
        ProcessSettings(
            loaded=load_process_function(factory.function, keyed=factory.keys is not None),
            place=_place(factory),
            inputs=(ProcessInput(factory.input_schema, factory.keys),),
            output_schema=factory.output_schema,
            side_schemas={tag.name: tag.schema for tag in factory.side_outputs},
            null_keys=factory.null_keys,
            event_time=factory.event_time,
            leading=leading,
            errors=factory.errors,
            added=None if sent is None else AddedColumns(sent, len(leading), factory.rowtime),
        )
    )


def co_process_operator(factory: CoProcessFunctionFactory) -> ProcessOperator:
    """The operator of two streams.

    Raises:
        PipelineError: the function cannot be made.
    """
    return _operator(
        ProcessSettings(
            loaded=load_process_function(factory.function, keyed=factory.is_keyed, inputs=factory.inputs),
            place=_place(factory),
            inputs=(
                ProcessInput(factory.input_schemas[0], factory.keys[0]),
                ProcessInput(
                    factory.input_schemas[1], factory.keys[1], broadcast=factory.inputs is FunctionInputs.BROADCAST
                ),
            ),
            output_schema=factory.output_schema,
            side_schemas={tag.name: tag.schema for tag in factory.side_outputs},
            null_keys=factory.null_keys,
            event_time=factory.event_time,
            errors=factory.errors,
        )
    )


def _place(factory: ProcessFunctionFactory | CoProcessFunctionFactory) -> str:
    return f"function '{factory.function.reference}' of '{factory.name}'"


def _operator(settings: ProcessSettings) -> ProcessOperator:
    return BatchProcessOperator(settings) if settings.loaded.batches else RowProcessOperator(settings)
