"""The recipe of process operators."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.api.operator import OperatorSpec, OutputTag
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, RowErrors
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.loading import TIMERS, load_process_function
from flowrun.operators.process.timer_table import timer_table
from flowrun.state.backend.tables import state_table


@record
class ProcessFunctionFactory(OperatorSpec):
    """Operators that run a user's process function; see `flowrun.api.process_function`.

    Attributes:
        function: how each subtask gets its own.
        input_schema: columns of the rows.
        output_schema: columns of what the function sends.
        keys: positions of the key columns; None: a function without keys. Rows of one key must reach one subtask.
        null_keys: what happens to rows one of whose keys is NULL.
        side_outputs: where else the function may send rows.
        name: of the step.
        event_time: whether rows have event time; None: the first batch shows it.
        leading: positions of the input columns that go before those that the function sends.
        sent_schema: all columns that leave the operator: the leading ones, `output_schema`, and the event time with `rowtime`; None: as
            `output_schema` says.
        rowtime: whether the last column is the rows' event time.
        errors: what becomes of rows of which `process_element` raises, or for which it gives what it must not.
    """

    function: FunctionRecipe
    input_schema: Schema
    output_schema: Schema
    keys: tuple[int, ...] | None = None
    null_keys: NullKeys = NullKeys.GROUP
    side_outputs: tuple[OutputTag, ...] = ()
    name: str = "process"
    event_time: bool | None = None
    leading: tuple[int, ...] = ()
    sent_schema: Schema | None = None
    rowtime: bool = False
    errors: RowErrors = FAIL

    @property
    def takes_exact_watermarks(self) -> bool:
        """Timers fire between rows, and functions ask for the watermark."""
        return self.event_time is not False

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The tables of the states that the function declares, and of its timers. Makes a function to look at.

        Raises:
            PipelineError: the function cannot be made.
        """
        if self.keys is None:
            return {}
        loaded = load_process_function(self.function, keyed=True)
        keys = pa.schema([pa.field(f.name, f.type.arrow) for f in (self.input_schema.fields[k] for k in self.keys)])
        descriptors = [d.descriptor(a) for a, d in loaded.states.items() if d.redistribution is None]
        schemas = {d.name: state_table(d, keys, 1).schema for d in descriptors}
        if loaded.timers:
            schemas[TIMERS] = timer_table(keys, 1).schema
        return schemas
