"""From the recipe of a process operator to the operator, with a function of its own."""

from __future__ import annotations

from flowrun.operators.process.added_columns import AddedColumns
from flowrun.operators.process.batches import BatchProcessOperator
from flowrun.operators.process.factories import ProcessFunctionFactory
from flowrun.operators.process.loading import load_process_function
from flowrun.operators.process.operator import ProcessOperator, ProcessSettings
from flowrun.operators.process.rows import RowProcessOperator


def process_operator(factory: ProcessFunctionFactory) -> ProcessOperator:
    """The operator for the form of the function, which is made here.

    Raises:
        PipelineError: the function cannot be made.
    """
    loaded = load_process_function(factory.function, keyed=factory.keys is not None)
    sent, leading = factory.sent_schema, factory.leading
    settings = ProcessSettings(
        loaded=loaded,
        place=f"function '{factory.function.reference}' of '{factory.name}'",
        input_schema=factory.input_schema,
        output_schema=factory.output_schema,
        side_schemas={tag.name: tag.schema for tag in factory.side_outputs},
        keys=factory.keys,
        null_keys=factory.null_keys,
        event_time=factory.event_time,
        leading=leading,
        errors=factory.errors,
        added=None if sent is None else AddedColumns(sent, len(leading), factory.rowtime),
    )
    return BatchProcessOperator(settings) if loaded.batches else RowProcessOperator(settings)
