"""What a group aggregation keeps: accumulators, sets of values with their counts, and lists of values; shared where calls agree.

Scalars suffice for counts and sums, and for kept values (MIN, MAX, FIRST_VALUE, LAST_VALUE) while nothing is retracted. What they do not
suffice for is fed from elsewhere: DISTINCT from a set of values, which says when a value appears and vanishes; MIN and MAX over
retractions too, as a scalar that is looked up again when it vanished; values in order of arrival from a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate, UserAggregate
from flowrun.api.state import keyed_schema
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, BYTES, DOUBLE, DataType
from flowrun.errors import InternalError
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.aggregation.layout import (
    PartialColumn,
    column_label,
    partial_column,
    state_key_fields,
    table_name,
)
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema
from flowrun.operators.state_meanings import call_text, column_texts, where_text
from flowrun.operators.updating.accumulators import accumulator_of
from flowrun.state.backend.tables import unlike

ROWS = "rows"
TOUCHED = "touched_ms"
VALUE = "value"
GROUPS = "groups"
_EXTREMES = ("min", "max")
_ENDS = ("first", "last")


@record
class SetCounter:
    """The rows of one filter in a set of values: its number of the set, and of the counter in it."""

    set: int
    counter: int


@record
class GroupColumn:
    """One accumulator: fed with rows, or with the values that appear in a set and vanish from it."""

    column: PartialColumn
    source: SetCounter | None = None


@record
class ValueSet:
    """The different values of one argument in each group, and how many rows of each filter have them.

    Attributes:
        counters: names of the state columns of the counts, in order of `filters`.
        keeps_nulls: NULL is a value, too.
    """

    argument: int
    type: DataType
    filters: tuple[int | None, ...]
    keeps_nulls: bool
    name: str
    counters: tuple[str, ...]


@record
class ValueList:
    """All values of one argument in each group, in order of arrival; fed with rows, or with the values of a set."""

    argument: int
    type: DataType
    filter: int | None
    source: SetCounter | None
    keeps_nulls: bool
    name: str


@record
class ListEnd:
    """A pointer to the first or last value of a list."""

    list: int
    last: bool


@record
class UserColumn:
    """The accumulators (JSON text) of a user's aggregate, fed in order of arrival with rows, or with the values of a set.

    Attributes:
        feed: what it is fed with, as a list would be.
        column: where the accumulators are kept.
    """

    user: UserAggregate
    feed: ValueList
    column: PartialColumn


@record
class GroupUse:
    """What one aggregate's result is made of: accumulators, a whole list (`collect`), one end of a list, or a user's accumulator."""

    aggregate: BoundAggregate
    columns: tuple[int, ...] = ()
    list: int | None = None
    end: int | None = None
    user: int | None = None


@record(slots=False)
class GroupLayout:
    """See the module; made by `of`."""

    input_schema: Schema
    keys: tuple[int, ...]
    retracting: bool
    columns: tuple[GroupColumn, ...]
    sets: tuple[ValueSet, ...]
    lists: tuple[ValueList, ...]
    ends: tuple[ListEnd, ...]
    users: tuple[UserColumn, ...]
    uses: tuple[GroupUse, ...]

    @classmethod
    def of(
        cls, input_schema: Schema, keys: Sequence[int], aggregates: Sequence[BoundAggregate], *, retracting: bool
    ) -> GroupLayout:
        """The layout for `aggregates` over rows of `input_schema`.

        Raises:
            DataError: a key or DISTINCT argument has a type that cannot be grouped.
        """
        return _Builder(input_schema, tuple(keys), retracting).build(aggregates)

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns."""
        return tuple(self.input_schema.fields[k] for k in self.keys)

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Encoding of the keys."""
        return KeyCodec.of([(f.name, f.type) for f in self.key_fields])

    @cached_property
    def set_codecs(self) -> tuple[KeyCodec, ...]:
        """Encoding of (number of the group, value) of each set."""
        return tuple(KeyCodec.of([("group", BIGINT), (_name(self, s.argument), s.type)]) for s in self.sets)

    @property
    def is_mergeable(self) -> bool:
        """Whether rows may be aggregated before the shuffle: nothing depends on the order in which they arrive."""
        return not (self.lists or self.users) and not any(c.column.is_ordered for c in self.columns)

    @cached_property
    def ordered_sets(self) -> frozenset[int]:
        """The sets whose values are listed in the order in which they appear."""
        fed = (*self.lists, *(u.feed for u in self.users))
        return frozenset(f.source.set for f in fed if f.source is not None)

    @cached_property
    def partial_fields(self) -> tuple[pa.Field, ...]:
        """The columns of all accumulators."""
        kept = [*(c.column for c in self.columns), *(u.column for u in self.users)]
        return tuple(f for c in kept for f in accumulator_of(c).fields)

    @cached_property
    def state_keys(self) -> tuple[pa.Field, ...]:
        """The key columns of all state tables, under names that none of their other columns has."""
        names = [f.name for f in self.partial_fields]
        counters = [c for s in self.sets for c in s.counters]
        return state_key_fields(self.key_fields, [*names, *counters, ROWS, TOUCHED, VALUE, ROW_COLUMN])

    def list_schema(self, number: int) -> Schema:
        """Rows of a list: keys, value."""
        names = [f.name for f in self.state_keys]
        keys = [Field(n, f.type) for n, f in zip(names, self.key_fields, strict=True)]
        return Schema((*keys, Field(VALUE, self.lists[number].type)))

    def state_schemas(self) -> dict[str, pa.Schema]:
        """Name of each state table → its columns."""
        optional = [pa.field(TOUCHED, pa.int64()), *self.partial_fields]
        schemas = {GROUPS: keyed_schema(self.state_keys, [pa.field(ROWS, pa.int64(), nullable=False), *optional])}
        for values in self.sets:
            counters = [pa.field(c, pa.int64()) for c in values.counters]
            schemas[values.name] = keyed_schema(self.state_keys, [pa.field(VALUE, values.type.arrow), *counters])
        for number, values_list in enumerate(self.lists):
            schemas[values_list.name] = row_store_schema(self.list_schema(number), range(len(self.keys)))
        return schemas

    @cached_property
    def transport_schema(self) -> Schema:
        """Columns of partial rows between a local and a global aggregation: keys, rows, accumulators, then each set's value and counts."""
        taken = {f.name for f in self.state_keys} | {f.name for f in self.partial_fields} | {ROWS}
        fields = [Field(k.name, f.type) for k, f in zip(self.state_keys, self.key_fields, strict=True)]
        fields.append(Field(ROWS, BIGINT))
        for column in self.row_columns:
            accumulator = accumulator_of(column.column)
            types = [column.column.type, DOUBLE if _is_float(accumulator.fields[-1]) else BIGINT]
            fields += [Field(f.name, t) for f, t in zip(accumulator.fields, types, strict=False)]
        for values in self.sets:
            fields.append(Field(unlike(values.name, taken), values.type))
            fields += [Field(unlike(f"{values.name}_{c}", taken), BIGINT) for c in values.counters]
        return Schema(tuple(fields))

    @cached_property
    def row_columns(self) -> tuple[GroupColumn, ...]:
        """The accumulators that are fed with rows."""
        return tuple(c for c in self.columns if c.source is None)


def _name(layout: GroupLayout, position: int) -> str:
    return layout.input_schema.names[position]


def _is_float(field: pa.Field) -> bool:
    return bool(pa.types.is_floating(field.type))


class _Builder:
    def __init__(self, schema: Schema, keys: tuple[int, ...], retracting: bool) -> None:
        self._schema = schema
        self._keys = keys
        self._retracting = retracting
        self._taken = {ROWS, TOUCHED, VALUE, GROUPS, ROW_COLUMN, *(schema.names[k] for k in keys)}
        self._tables = {GROUPS}
        self._columns: dict[tuple[object, ...], GroupColumn] = {}
        self._places: dict[tuple[object, ...], int] = {}
        self._sets: dict[int, ValueSet] = {}
        self._lists: dict[tuple[object, ...], ValueList] = {}
        self._ends: list[ListEnd] = []
        self._users: list[UserColumn] = []

    def build(self, aggregates: Sequence[BoundAggregate]) -> GroupLayout:
        uses = tuple(self._use(a) for a in aggregates)
        layout = GroupLayout(
            self._schema,
            self._keys,
            self._retracting,
            tuple(self._columns.values()),
            tuple(self._sets.values()),
            tuple(self._lists.values()),
            tuple(self._ends),
            tuple(self._users),
            uses,
        )
        _ = layout.key_codec, layout.set_codecs  # reports types that cannot be grouped
        return layout

    def _use(self, aggregate: BoundAggregate) -> GroupUse:
        kernel = aggregate.kernel
        kinds = {a.partial for a in kernel.accumulators}
        if aggregate.argument is None and (aggregate.distinct or kinds != {"count_all"}):
            raise InternalError(f"aggregate {kernel.function} AS {aggregate.name} needs an argument")
        if kinds & set(_EXTREMES):
            # equal values change nothing, so DISTINCT says nothing
            source = self._counter(aggregate) if self._retracting else None
        else:
            source = self._counter(aggregate) if aggregate.distinct else None
        if kernel.user is not None and (kernel.user.retractable or not self._retracting):
            self._users.append(self._user_column(aggregate, kernel.user, source))
            return GroupUse(aggregate, user=len(self._users) - 1)
        if kernel.collect is not None:
            return GroupUse(aggregate, list=self._list(aggregate, source))
        if self._retracting and kinds & set(_ENDS):
            end = ListEnd(self._list(aggregate, source), last="last" in kinds)
            if end not in self._ends:
                self._ends.append(end)
            return GroupUse(aggregate, end=self._ends.index(end))
        return GroupUse(aggregate, tuple(self._column(aggregate, i, source) for i in range(len(kernel.accumulators))))

    def _column(self, aggregate: BoundAggregate, number: int, source: SetCounter | None) -> int:
        filter_ = aggregate.filter if source is None else None
        accumulator = aggregate.kernel.accumulators[number]
        column = partial_column(accumulator, aggregate, "", aggregate.argument, filter_)
        identity = (column.partial, column.merge, column.type, column.argument, column.filter, source)
        if identity not in self._columns:
            kind = "count" if column.partial == "count_all" else column.partial
            label = column_label(column.argument, aggregate.filter, aggregate.name, self._schema)
            distinct = "distinct_" if aggregate.distinct and source is not None else ""
            name = distinct + (f"{kind}_{label}" if label else kind)
            while name in self._taken or any(f.name in self._taken for f in _fields(column, name)):
                name += "_"
            self._taken.update(f.name for f in _fields(column, name))
            self._places[identity] = len(self._columns)
            self._columns[identity] = GroupColumn(replace(column, name=name), source)
        return self._places[identity]

    def _counter(self, aggregate: BoundAggregate) -> SetCounter:
        argument = aggregate.argument
        assert argument is not None
        keeps_nulls = aggregate.kernel.keeps_nulls
        if argument not in self._sets:
            label = column_label(argument, None, aggregate.name, self._schema)
            name = table_name("values", label, self._tables)
            self._sets[argument] = ValueSet(argument, self._schema.types[argument], (), False, name, ())
        values = self._sets[argument]
        if aggregate.filter not in values.filters:
            label = (
                column_label(None, aggregate.filter, aggregate.name, self._schema)
                if aggregate.filter is not None
                else ""
            )
            counter = unlike(f"count_{label}" if label else "count", {*values.counters, *self._taken})
            values = replace(values, filters=(*values.filters, aggregate.filter), counters=(*values.counters, counter))
        self._sets[argument] = replace(values, keeps_nulls=values.keeps_nulls or keeps_nulls)
        return SetCounter(list(self._sets).index(argument), values.filters.index(aggregate.filter))

    def _user_column(self, aggregate: BoundAggregate, user: UserAggregate, source: SetCounter | None) -> UserColumn:
        assert aggregate.argument is not None
        filter_ = aggregate.filter if source is None else None
        feed = ValueList(aggregate.argument, self._schema.types[aggregate.argument], filter_, source, True, "")
        name = unlike(f"accumulator_{aggregate.name}", self._taken)
        place = f"{user.name} AS {aggregate.name}"
        return UserColumn(user, feed, PartialColumn(name, "last", "last", BYTES, aggregate.argument, None, place))

    def _list(self, aggregate: BoundAggregate, source: SetCounter | None) -> int:
        assert aggregate.argument is not None
        filter_ = aggregate.filter if source is None else None
        keeps_nulls = aggregate.kernel.keeps_nulls
        identity = (aggregate.argument, filter_, source, keeps_nulls)
        if identity not in self._lists:
            label = column_label(aggregate.argument, aggregate.filter, aggregate.name, self._schema)
            name = table_name("distinct_list" if source is not None else "list", label, self._tables)
            kind = self._schema.types[aggregate.argument]
            self._lists[identity] = ValueList(aggregate.argument, kind, filter_, source, keeps_nulls, name)
        return list(self._lists).index(identity)


def _fields(column: PartialColumn, name: str) -> tuple[pa.Field, ...]:
    return accumulator_of(replace(column, name=name)).fields


def group_meanings(layout: GroupLayout, aggregates: tuple[BoundAggregate, ...]) -> Mapping[str, Mapping[str, str]]:
    """Keyed table → column → what it holds."""
    texts = column_texts(layout.input_schema, aggregates)
    groups = {ROWS: "COUNT(*)", TOUCHED: "time of the last row, ms since the epoch, if state has a time to live"}
    for kept in layout.columns:
        column = kept.column
        call = call_text(column, texts)
        if kept.source is not None:
            where = where_text(layout.sets[kept.source.set].filters[kept.source.counter], texts)
            distinct = not column.partial.startswith(("min", "max"))
            call = (call.replace("(", "(DISTINCT ", 1) if distinct else call) + where
        groups[column.name] = call
        for field in accumulator_of(column).fields[1:]:
            groups[field.name] = f"{'what rounding left out' if column.type.is_approximate else 'overflow'} of {call}"
    for user in layout.users:
        distinct_text = "DISTINCT " if user.feed.source is not None else ""
        call = f"{user.user.name}({distinct_text}{texts[user.feed.argument]}){_filter(layout, user.feed, texts)}"
        groups[user.column.name] = f"accumulator of {call}, as JSON text"
    tables: dict[str, Mapping[str, str]] = {GROUPS: groups}
    for values in layout.sets:
        counters = zip(values.counters, values.filters, strict=True)
        tables[values.name] = {
            VALUE: f"different values of {texts[values.argument]}",
            **{name: f"how many rows have the value{where_text(filter_, texts)}" for name, filter_ in counters},
        }
    for listed in layout.lists:
        kept_values = "different values of" if listed.source is not None else "values of"
        tables[listed.name] = {VALUE: f"{kept_values} {texts[listed.argument]}{_filter(layout, listed, texts)}"}
    return tables


def _filter(layout: GroupLayout, values: ValueList, texts: Mapping[int, str]) -> str:
    if values.source is None:
        return where_text(values.filter, texts)
    return where_text(layout.sets[values.source.set].filters[values.source.counter], texts)
