"""State of a process function whose type has changed, made anew by the function that its declaration names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flowrun.api.state import ListStateDescriptor, StateDescriptor
from flowrun.core.types import array
from flowrun.errors import StateError
from flowrun.operators.function_loading import describe, where
from flowrun.operators.user_values import UNFIT, array_of, python_values
from flowrun.state.backend.tables import StateTable


class MigratedValues:
    """The values of one state.

    Args:
        descriptor: of the state; it has a `migrate`.
        table: as the function keeps it now.
    """

    def __init__(self, descriptor: StateDescriptor, table: StateTable) -> None:
        self._descriptor = descriptor
        self._column = table.values[0].name

    def migrated(self, rows: pa.Table) -> pa.Table:
        """The rows of a table that was written with other values, with the values that `migrate` makes of them.

        Raises:
            StateError: it failed, or gave something else; names the state, the value and the user's line.
        """
        descriptor = self._descriptor
        is_list = isinstance(descriptor, ListStateDescriptor)
        position = rows.schema.get_field_index(self._column)
        kept = python_values(rows.column(position).combine_chunks())
        made = [self._made(v, is_list) for v in kept]
        kind = array(descriptor.type) if is_list else descriptor.type
        try:
            values = array_of(made, kind)
        except UNFIT as error:
            raise StateError(f"state '{descriptor.name}': migrate gave what is no {kind}: {error}") from error
        return rows.set_column(position, pa.field(self._column, kind.arrow), values)

    def _made(self, value: Any, is_list: bool) -> Any:
        assert self._descriptor.migrate is not None
        if value is None:
            return None
        try:
            return [self._descriptor.migrate(v) for v in value] if is_list else self._descriptor.migrate(value)
        except Exception as error:
            shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:79] + "…"
            raise StateError(
                f"state '{self._descriptor.name}': migrate failed on {shown}: {describe(error)}{where(error, __file__)}",
                hint="handle such values in it; nothing of the savepoint has changed",
            ) from error
