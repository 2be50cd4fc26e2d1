"""The recipes of process operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from flowrun.api.operator import BatchForm, OperatorSpec, OutputTag, StateMigrations
from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN, StateDescriptor, with_migration
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, RowErrors
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.operators.process.loading import TIMERS, LoadedFunction, load_process_function
from flowrun.operators.process.migration import MigratedValues
from flowrun.operators.timers import DOMAIN_COLUMN, TIMESTAMP_COLUMN
from flowrun.state.backend.tables import StateTable, state_table, unlike

StateTables = tuple[tuple[str, pa.Schema], ...]
"""Keyed tables by name."""


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
        tables: those of the states of keys, as `declared_tables` gives them, so that the recipe can be described without the function;
            None: nobody has looked.
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
    tables: StateTables | None = None

    batch_form = BatchForm.ENDS_KEYS

    @property
    def takes_exact_watermarks(self) -> bool:
        """Timers fire between rows, and functions ask for the watermark."""
        return self.event_time is not False

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The tables of the states that the function declares, and of its timers. A function is made to look at if there are no `tables`.

        Raises:
            PipelineError: the function cannot be made.
        """
        if self.tables is None and self.keys is not None:
            loaded = load_process_function(self.function, keyed=True)
            return dict(declared_tables(loaded, self.input_schema, self.keys))
        return dict(self.tables or ())

    def state_migrations(self) -> StateMigrations:
        """What the function makes of state of other types; it is loaded. Raises PipelineError if it cannot be."""
        if self.keys is None:
            return {}
        return _migrations(load_process_function(self.function, keyed=True), self.input_schema, self.keys)


@record
class CoProcessFunctionFactory(OperatorSpec):
    """Operators that run a user's function of two streams; see `flowrun.api.co_process_function`.

    Attributes:
        function: how each subtask gets its own.
        inputs: what it reads.
        input_schemas: columns of the rows of each input.
        output_schema: columns of what the function sends.
        keys: of each input the positions of the key columns; None: it has none. Rows of one key must reach one subtask.
        null_keys: what happens to rows one of whose keys is NULL.
        side_outputs: where else the function may send rows.
        name: of the step.
        event_time: whether rows have event time; None: the first batches show it.
        errors: what becomes of rows of which a row function raises, or for which it gives what it must not.
        tables: those of the states of keys, as `declared_tables` gives them; None: nobody has looked.
    """

    function: FunctionRecipe
    inputs: FunctionInputs
    input_schemas: tuple[Schema, Schema]
    output_schema: Schema
    keys: tuple[tuple[int, ...] | None, tuple[int, ...] | None] = (None, None)
    null_keys: NullKeys = NullKeys.GROUP
    side_outputs: tuple[OutputTag, ...] = ()
    name: str = "co-process"
    event_time: bool | None = None
    errors: RowErrors = FAIL
    tables: StateTables | None = None

    batch_form = BatchForm.ENDS_KEYS

    @property
    def is_keyed(self) -> bool:
        """Whether the function has keys."""
        return self.keys[0] is not None

    @property
    def takes_exact_watermarks(self) -> bool:
        """Timers fire between rows, and functions ask for the watermark."""
        return self.event_time is not False

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The tables of the states that the function declares, and of its timers. A function is made to look at if there are no `tables`.

        Raises:
            PipelineError: the function cannot be made.
        """
        if self.tables is None and self.keys[0] is not None:
            loaded = load_process_function(self.function, keyed=True, inputs=self.inputs)
            return dict(declared_tables(loaded, self.input_schemas[0], self.keys[0]))
        return dict(self.tables or ())

    def state_migrations(self) -> StateMigrations:
        """What the function makes of state of other types; it is loaded. Raises PipelineError if it cannot be."""
        if self.keys[0] is None:
            return {}
        loaded = load_process_function(self.function, keyed=True, inputs=self.inputs)
        return _migrations(loaded, self.input_schemas[0], self.keys[0])


def declared_tables(loaded: LoadedFunction, rows: Schema, keys: Sequence[int] | None) -> StateTables:
    """The tables of the states of keys that a function declares, and of its timers.

    Args:
        loaded: the function.
        rows: columns of its first input.
        keys: positions of the key columns in it; None: it has none, and so no tables.
    """
    if keys is None:
        return ()
    columns = key_columns([rows.fields[k] for k in keys])
    descriptors = [d.descriptor(a) for a, d in loaded.states.items() if d.redistribution is None]
    schemas = {d.name: _table_schema(d, columns) for d in descriptors}
    if loaded.timers:
        schemas[TIMERS] = timer_table(columns, 1).schema
    return tuple(schemas.items())


def _table_schema(descriptor: StateDescriptor, keys: pa.Schema) -> pa.Schema:
    table = state_table(descriptor, keys, 1)
    if descriptor.migrate is None:
        return table.schema
    return with_migration(table.schema, table.values[0].name, descriptor.migrate)


def _migrations(loaded: LoadedFunction, rows: Schema, keys: Sequence[int]) -> StateMigrations:
    """What the states of a function that have a `migrate` make of tables that hold other values."""
    columns = key_columns([rows.fields[k] for k in keys])
    descriptors = [d.descriptor(a) for a, d in loaded.states.items() if d.redistribution is None]
    return {
        d.name: MigratedValues(d, state_table(d, columns, 1)).migrated for d in descriptors if d.migrate is not None
    }


def timer_table(keys: pa.Schema, max_parallelism: int) -> StateTable:
    """The table for some key columns."""
    entry = (pa.field(TIMESTAMP_COLUMN, pa.int64()), pa.field(DOMAIN_COLUMN, pa.string()))
    return StateTable(TIMERS, keys, entry, (), max_parallelism)


def key_columns(fields: Sequence[Field]) -> pa.Schema:
    """The key columns in state tables: under their names, unless a column that every such table has is called so.

    >>> from flowrun.core.types import BIGINT
    >>> key_columns([Field("user", BIGINT), Field("__timestamp", BIGINT)]).names
    ['user', '__timestamp_']
    """
    taken = {KEY_GROUP_COLUMN, DELETED_COLUMN, TIMESTAMP_COLUMN, DOMAIN_COLUMN}
    return pa.schema([pa.field(unlike(f.name, taken), f.type.arrow) for f in fields])
