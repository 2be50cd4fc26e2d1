"""Which partial columns a set of aggregates needs: shared between aggregates, named, typed, in one order everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.aggregate import Accumulator, BoundAggregate
from flowrun.api.state import KEY_GROUP_COLUMN
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, DataType, TypeRoot, decimal, timestamp
from flowrun.errors import InternalError
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.state.backend.tables import unlike

SLICE_END = "slice_end"
SESSION_BOUNDS = ("session_start", "session_end")

_RESERVED = frozenset(
    {
        KEY_GROUP_COLUMN,
        SLICE_END,
        *SESSION_BOUNDS,
        "window_start",
        "window_end",
        "trigger",
        "cell",
        "rows",
        "value",
        "seq",
    }
    | {"next_firing", "changed", "time", "event_time"}
)
"""Names of other columns of state tables, which no key or partial column may have."""
_COMPUTED = "$"
"""Names of columns that the planner made up begin with this: their position, not their meaning."""

_PARTIALS = ("count_all", "count", "sum", "sum_of_squares", "min", "max", "first", "last")
_MERGES = ("sum", "min", "max", "first", "last")


@record
class PartialColumn:
    """One accumulator over one argument and filter.

    Attributes:
        partial: what it holds, as `Accumulator.partial`.
        companion: a second column: the carry of a sum of integers, or the arrival number of a first or last value.
    """

    name: str
    partial: str
    merge: str
    type: DataType
    argument: int | None
    filter: int | None
    place: str

    @property
    def is_ordered(self) -> bool:
        """Whether it depends on arrival order."""
        return self.partial in ("first", "last")

    @property
    def is_checked_sum(self) -> bool:
        """Whether it sums integers or decimals, which may overflow."""
        return self.partial == "sum" and not self.type.is_approximate

    @property
    def companion(self) -> str | None:
        """Name of the companion column, if there is one."""
        if self.is_ordered:
            return f"{self.name}_seq"
        return f"{self.name}_carry" if self.partial == "sum" and self.type.is_integer else None


@record
class SideColumn:
    """Values that cannot be folded: distinct values of an argument, or all of them in arrival order."""

    argument: int
    filter: int | None
    distinct: bool
    type: DataType
    name: str
    keeps_nulls: bool = False
    label: str = ""
    """What its state table is named after: argument and filter, or the aggregate if those were computed."""


@record
class AggregateUse:
    """Where one aggregate's accumulators are: `partials` are positions in the layout's partial columns or, with `side`, in its
    `columns` over the side's values; an aggregate that collects has a side and no columns.
    """

    aggregate: BoundAggregate
    partials: tuple[int, ...] = ()
    side: int | None = None
    columns: tuple[PartialColumn, ...] = ()


@record(slots=False)
class PartialLayout:
    """Keys, partial columns and side tables of a grouped aggregation; see `of`."""

    input_schema: Schema
    keys: tuple[int, ...]
    partials: tuple[PartialColumn, ...]
    sides: tuple[SideColumn, ...]
    uses: tuple[AggregateUse, ...]

    @classmethod
    def of(
        cls,
        input_schema: Schema,
        keys: Sequence[int],
        aggregates: Sequence[BoundAggregate],
        *,
        count_rows: bool = False,
    ) -> PartialLayout:
        """The layout for `aggregates` over rows of `input_schema`; equal accumulators are computed once.

        Args:
            input_schema: columns of raw rows.
            keys: positions of the key columns.
            aggregates: what is computed.
            count_rows: make sure that there is a column with the number of rows (see `row_count`).

        Raises:
            DataError: a key or DISTINCT argument has a type that cannot be grouped.
        """
        partials: dict[tuple[object, ...], PartialColumn] = {}
        sides: dict[tuple[object, ...], SideColumn] = {}
        uses: list[AggregateUse] = []
        taken = {*_RESERVED, *(input_schema.names[k] for k in keys)}
        for aggregate in aggregates:
            if aggregate.distinct or aggregate.kernel.collect is not None:
                uses.append(_side_use(aggregate, input_schema, sides))
                continue
            positions = []
            for accumulator in aggregate.kernel.accumulators:
                column = partial_column(accumulator, aggregate, "", aggregate.argument, aggregate.filter)
                identity = (column.partial, column.merge, column.type, column.argument, column.filter)
                positions.append(list(partials).index(identity) if identity in partials else len(partials))
                if identity not in partials:
                    partials[identity] = _named(column, aggregate.name, input_schema, taken)
            uses.append(AggregateUse(aggregate, tuple(positions)))
        rows = PartialColumn("", "count_all", "sum", BIGINT, None, None, "COUNT(*)")
        identity = ("count_all", "sum", BIGINT, None, None)
        if count_rows and identity not in partials:
            partials[identity] = _named(rows, "", input_schema, taken)
        layout = cls(input_schema, tuple(keys), tuple(partials.values()), tuple(sides.values()), tuple(uses))
        _ = layout.key_codec, layout.value_codecs  # reports types that cannot be grouped
        return layout

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns."""
        return tuple(self.input_schema.fields[k] for k in self.keys)

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Encoding of the keys."""
        return KeyCodec.of([(f.name, f.type) for f in self.key_fields])

    @cached_property
    def value_codecs(self) -> tuple[KeyCodec, ...]:
        """Encoding of the values of each side table; only distinct ones need it."""
        return tuple(KeyCodec.of([(s.name, s.type)]) if s.distinct else KeyCodec((NOT_NESTED,)) for s in self.sides)

    @cached_property
    def is_ordered(self) -> bool:
        """Whether any partial column depends on arrival order."""
        return any(p.is_ordered for p in self.partials)

    @cached_property
    def row_count(self) -> str | None:
        """Name of the partial column that counts all rows, if there is one."""
        for partial in self.partials:
            if partial.partial == "count_all" and partial.filter is None:
                return partial.name
        return None

    @cached_property
    def transport_schema(self) -> Schema:
        """Columns of partial rows between a local and a global aggregation: keys, slice_end, partial columns."""
        keys = [Field(k.name, f.type) for k, f in zip(self.state_keys, self.key_fields, strict=True)]
        columns = [Field(SLICE_END, timestamp(3))]
        for partial in self.partials:
            columns.append(Field(partial.name, partial.type))
            if partial.companion is not None:
                columns.append(Field(partial.companion, BIGINT))
        return Schema((*keys, *columns))

    @cached_property
    def state_keys(self) -> tuple[pa.Field, ...]:
        """The key columns of state tables: under names that no other column of any state table has."""
        return state_key_fields(self.key_fields, self.partial_names)

    @cached_property
    def side_names(self) -> tuple[str, ...]:
        """Names of the state tables of `sides`, made of letters, digits and underscores."""
        taken: set[str] = set()
        names = []
        for side in self.sides:
            kind = "distinct" if side.distinct else "values"
            parts = [kind, side.label, *(["nulls"] if side.keeps_nulls else [])]
            names.append(table_name("_".join(parts), "", taken))
        return tuple(names)

    def without_nulls(self, name: str, column: pa.Array) -> pa.Array:
        """A restored partial column, with 0 for NULL in counts: a column that the state did not have has counted nothing."""
        return pc.fill_null(column, 0) if column.null_count and name in self._counts else column

    @cached_property
    def _counts(self) -> frozenset[str]:
        return frozenset(p.name for p in self.partials if p.partial in ("count", "count_all"))

    @cached_property
    def partial_names(self) -> tuple[str, ...]:
        """Names of the partial columns and their companions, in order."""
        return tuple(n for p in self.partials for n in (p.name, p.companion) if n is not None)

    @cached_property
    def partial_types(self) -> tuple[pa.DataType, ...]:
        """Arrow types of `partial_names`."""
        return tuple(
            t for p in self.partials for n, t in ((p.name, p.type.arrow), (p.companion, pa.int64())) if n is not None
        )


NOT_NESTED = BIGINT
_NO_NAME = re.compile(r"[^A-Za-z0-9]+")


def state_key_fields(keys: Sequence[Field], partial_names: Sequence[str]) -> tuple[pa.Field, ...]:
    """Key columns of state tables that have these partial columns, under names of their own."""
    taken = {*_RESERVED, *partial_names}
    return tuple(pa.field(unlike(f.name, taken), f.type.arrow) for f in keys)


def table_name(kind: str, label: str, taken: set[str]) -> str:
    """Name of a state table of letters, digits and underscores; it is taken then."""
    return unlike(_NO_NAME.sub("_", f"{kind}_{label}" if label else kind).lower(), taken)


def partial_column(
    accumulator: Accumulator, aggregate: BoundAggregate, name: str, argument: int | None, filter_: int | None
) -> PartialColumn:
    """The column of one accumulator of an aggregate."""
    if accumulator.partial not in _PARTIALS or accumulator.merge not in _MERGES:
        raise InternalError(
            f"aggregate {aggregate.kernel.function} has accumulator {accumulator.name} = {accumulator.partial}, merged by"
            f" {accumulator.merge}; expected one of {', '.join(_PARTIALS)}, merged by one of {', '.join(_MERGES)}"
        )
    kind = accumulator.type
    if accumulator.partial == "sum" and kind.root is TypeRoot.DECIMAL:
        kind = decimal(38, kind.scale or 0)  # what a sum of decimals has in Arrow; `finish` casts it
    place = f"{aggregate.kernel.function} AS {aggregate.name}"
    argument = None if accumulator.partial == "count_all" else argument
    return PartialColumn(name, accumulator.partial, accumulator.merge, kind, argument, filter_, place)


def _named(column: PartialColumn, alias: str, schema: Schema, taken: set[str]) -> PartialColumn:
    """The column under a name that says what it holds, so that its state outlives another order of the aggregates."""
    kind = "count" if column.partial == "count_all" else column.partial
    label = column_label(column.argument, column.filter, alias, schema)
    wanted = f"{kind}_{label}" if label else kind
    while True:
        named = replace(column, name=wanted)
        names = {wanted, named.companion or wanted}
        if not names & taken:
            taken |= names
            return named
        wanted += "_"


def column_label(argument: int | None, filter_: int | None, alias: str, schema: Schema) -> str:
    """`amount`, `amount_if_paid`; the alias instead if a column is a computed one."""
    read = [schema.names[i] for i in (argument, filter_) if i is not None]
    if any(name.startswith(_COMPUTED) for name in read):
        return alias
    name = "" if argument is None else schema.names[argument]
    return name if filter_ is None else f"{name}_if_{schema.names[filter_]}".lstrip("_")


def _side_use(aggregate: BoundAggregate, schema: Schema, sides: dict[tuple[object, ...], SideColumn]) -> AggregateUse:
    if aggregate.argument is None:
        raise InternalError(f"aggregate {aggregate.kernel.function} AS {aggregate.name} needs an argument")
    keeps_nulls = aggregate.kernel.keeps_nulls
    identity = (aggregate.argument, aggregate.filter, aggregate.distinct, keeps_nulls)
    field = schema.fields[aggregate.argument]
    label = column_label(aggregate.argument, aggregate.filter, aggregate.name, schema)
    side = SideColumn(
        aggregate.argument, aggregate.filter, aggregate.distinct, field.type, field.name, keeps_nulls, label
    )
    position = list(sides).index(identity) if identity in sides else len(sides)
    sides.setdefault(identity, side)
    if aggregate.kernel.collect is not None:
        return AggregateUse(aggregate, side=position)
    columns = tuple(
        partial_column(accumulator, aggregate, f"d{i}", aggregate.argument, None)
        for i, accumulator in enumerate(aggregate.kernel.accumulators)
    )
    return AggregateUse(aggregate, side=position, columns=columns)
