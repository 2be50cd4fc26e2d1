"""The tables that keyed state becomes in a snapshot: one a state, the same whether a function works on rows or on batches.

Columns: `__key_group`, the key columns, for maps `map_key`, then `value`, and with a time to live `__written`, the ms of the last write
(or read). In the segments of a log `__deleted` follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowrun.api.state import (
    DELETED_COLUMN,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    keyed_schema,
)
from flowrun.core.arrays import Bools
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.key_groups import key_groups_or_zero

VALUE_COLUMN = "value"
MAP_KEY_COLUMN = "map_key"
WRITTEN_COLUMN = "__written"


@record
class StateTable:
    """The shape of one table.

    Attributes:
        name: of the state.
        keys: names and Arrow types of the key columns.
        entry: a further column that tells rows of one key apart (a map's key, a timer's time), or none.
        values: the other columns: the value, and with a time to live the time of the last write.
        max_parallelism: number of key groups.
        grouped_by: so many of the key columns, the first ones, decide on the key group; None: all.
    """

    name: str
    keys: pa.Schema
    entry: tuple[pa.Field, ...]
    values: tuple[pa.Field, ...]
    max_parallelism: int
    grouped_by: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of what is restored."""
        return keyed_schema(self.keys, (*self.entry, *self.values))

    @property
    def log_schema(self) -> pa.Schema:
        """Columns of the segments."""
        return self.schema.append(pa.field(DELETED_COLUMN, pa.bool_()))

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the columns that tell rows apart, besides the key group."""
        return (*self.keys.names, *(f.name for f in self.entry))

    def segment(self, keys: Sequence[pa.Array], others: Sequence[pa.Array], deleted: Bools | pa.Array) -> pa.Table:
        """Rows of a log; `others` are the columns after the keys."""
        groups = key_groups_or_zero(keys[: self.grouped_by], len(deleted), self.max_parallelism)
        return pa.Table.from_arrays(
            [pa.array(groups), *keys, *others, pa.array(deleted, pa.bool_())], schema=self.log_schema
        )

    def restored(self, table: pa.Table) -> pa.RecordBatch:
        """The rows of a restored table as one batch.

        Raises:
            StateError: the table has other columns.
        """
        if not table.schema.equals(self.schema):
            raise StateError(
                f"state '{self.name}' has the columns {_columns_text(self.schema)}, the snapshot has "
                f"{_columns_text(table.schema)}",
                hint="the state's type or the keys changed; give the step another uid to start it without its old state",
            )
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self.schema)

    def written(self, rows: pa.RecordBatch) -> pa.Array | None:
        """When rows of the table were written last, ms; None: the state has no time to live."""
        return rows.column(len(self.schema) - 1) if len(self.values) > 1 else None


def state_table(
    descriptor: StateDescriptor, keys: pa.Schema, max_parallelism: int, grouped_by: int | None = None
) -> StateTable:
    """The table of a state. Columns whose names the keys have already get another one: `value_`."""
    entry: tuple[pa.Field, ...] = ()
    kind = descriptor.type.arrow
    if isinstance(descriptor, MapStateDescriptor):
        entry = (pa.field(_free(MAP_KEY_COLUMN, keys), descriptor.key_type.arrow),)
    elif isinstance(descriptor, ListStateDescriptor):
        kind = pa.list_(kind)
    values = [pa.field(_free(VALUE_COLUMN, keys), kind)]
    if descriptor.ttl is not None:
        values.append(pa.field(_free(WRITTEN_COLUMN, keys), pa.int64()))
    return StateTable(descriptor.name, keys, entry, tuple(values), max_parallelism, grouped_by)


def unlike(name: str, taken: set[str]) -> str:
    """The name, with underscores behind it if it is taken; it is taken then."""
    while name in taken:
        name = f"{name}_"
    taken.add(name)
    return name


def _free(name: str, keys: pa.Schema) -> str:
    while name in keys.names:
        name += "_"
    return name


def _columns_text(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
