"""The partial-aggregate engine: rows → partial results (`lift`), equal groups → one (`merge`), partial results → columns (`finish`).

Pure over Arrow data; keeps no state between calls, so one engine may serve any number of states. Groups are encoded key columns
(`PartialLayout.key_codec`), optionally preceded by other group columns such as a slice's end; without keys all rows are one group.

Order-sensitive aggregates carry the arrival number of the value they hold, so that merging is right whatever the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import as_type
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.dense import Reduction, Slots
from flowrun.operators.aggregation.grouping import group_ids, numbered_groups, reduce_by, reduce_ids
from flowrun.operators.aggregation.inputs import ArgumentReader, positions_by_arrival
from flowrun.operators.aggregation.layout import AggregateUse, PartialColumn, PartialLayout
from flowrun.operators.aggregation.sums import SumPlan, check_carry, plan_sum

__all__ = ["AggregationEngine", "Bundle", "concat_bundles"]

VALUE = "value"
SEQ = "seq"


class AggregationEngine:
    """Computes the aggregates of a `PartialLayout`. Stateless and thread-safe."""

    def __init__(self, layout: PartialLayout) -> None:
        self.layout = layout
        self.key_names = tuple(f"k{i}" for i in range(max(len(layout.keys), 1)))

    def encode_keys(self, columns: Sequence[pa.Array], rows: int) -> list[pa.Array]:
        """Group columns of key columns; without keys, one constant column, so that all rows are one group."""
        if not self.layout.keys:
            return [pa.array(np.zeros(rows, np.int8))]
        return self.layout.key_codec.encode(columns)

    @property
    def group_types(self) -> tuple[pa.DataType, ...]:
        """Arrow types of the keys' group columns."""
        return self.layout.key_codec.groupable if self.layout.keys else (pa.int8(),)

    def nothing(self, leading: Sequence[str]) -> Bundle:
        """A bundle without rows, grouped by `leading` (int64) only."""
        columns: list[tuple[str, pa.DataType]] = [(n, pa.int64()) for n in leading]
        partials = list(zip(self.layout.partial_names, self.layout.partial_types, strict=True))
        main = pa.schema([*columns, *partials])
        values = [
            c.groupable[0] if s.distinct else s.type.arrow
            for s, c in zip(self.layout.sides, self.layout.value_codecs, strict=True)
        ]
        sides = [pa.schema([*columns, (VALUE, v), (SEQ, pa.int64())]) for v in values]
        return Bundle(len(columns), _no_rows(main), tuple(_no_rows(s) for s in sides))

    def key_columns(self, columns: pa.RecordBatch) -> list[pa.Array]:
        """Group columns of raw rows."""
        return self.encode_keys([columns.column(k) for k in self.layout.keys], columns.num_rows)

    def decode_keys(self, groups: Sequence[pa.Array]) -> list[pa.Array]:
        """Key columns of group columns (without any leading ones)."""
        return self.layout.key_codec.decode(groups) if self.layout.keys else []

    def bundle_of(
        self,
        keys: Sequence[pa.Array],
        partials: Sequence[pa.Array],
        rows: int,
        *,
        leading: Sequence[tuple[str, pa.Array]] = (),
    ) -> Bundle:
        """A bundle without side tables from key columns as they travel and partial columns in the layout's order."""
        groups = [*(c for _, c in leading), *self.encode_keys(keys, rows)]
        names = [*(n for n, _ in leading), *self.key_names, *self.layout.partial_names]
        return Bundle(len(groups), pa.RecordBatch.from_arrays([*groups, *partials], names=names))

    # rows → partial results

    def lift(
        self,
        columns: pa.RecordBatch,
        sequence: int,
        *,
        leading: Sequence[tuple[str, pa.Array]] = (),
        reduce: bool = True,
        keyed: bool = True,
    ) -> Bundle:
        """Partial results of rows of `PartialLayout.input_schema`.

        Args:
            columns: the rows.
            sequence: arrival number of the first row; grows over an operator's life.
            leading: group columns (int64) ahead of the keys.
            keyed: group by the keys after `leading`; else by `leading` only.
            reduce: fold equal groups; else every row becomes a partial result of its own, which is cheaper when few are equal.

        Raises:
            DataError: a decimal sum overflows.
        """
        keys = self.key_columns(columns) if keyed else []
        groups = [*(c for _, c in leading), *keys]
        names = [*(n for n, _ in leading), *(self.key_names if keyed else ())]
        reader = ArgumentReader(columns, sequence)
        if reduce:
            out_keys, partials = self._reduce_rows(groups, columns.num_rows, reader)
        else:
            out_keys, partials = groups, self._each_row(reader)
        main = pa.RecordBatch.from_arrays([*out_keys, *partials], names=[*names, *self.layout.partial_names])
        return Bundle(
            len(groups), main, tuple(self._lift_side(i, groups, names, reader) for i in range(len(self.layout.sides)))
        )

    def _reduce_rows(
        self, groups: list[pa.Array], rows: int, reader: ArgumentReader
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        reductions: list[Reduction] = []
        plans: list[SumPlan | None] = []
        for partial in self.layout.partials:
            plan = plan_sum(reader.summands(partial)) if partial.partial == "sum" else None
            plans.append(plan)
            reductions.extend(plan.reductions if plan is not None else reader.reductions(partial))
        keys, columns = reduce_by(groups, rows, reductions)
        return keys, self._assemble(plans, columns)

    def _assemble(self, plans: Sequence[SumPlan | None], columns: list[pa.Array]) -> list[pa.Array]:
        """Partial and companion columns, in the layout's order, from reduced ones."""
        out: list[pa.Array] = []
        at = 0
        for partial, plan in zip(self.layout.partials, plans, strict=True):
            width = len(plan.reductions) if plan is not None else 2 if partial.is_ordered else 1
            own = columns[at : at + width]
            at += width
            carry: pa.Array | None = own[1] if partial.is_ordered else None
            value = own[0]
            if plan is not None:
                value, carry = plan.combine(own, partial.place)
            out.append(as_type(value, partial.type.arrow))
            if partial.companion is not None:
                out.append(pa.nulls(len(value), pa.int64()) if carry is None else carry)
        return out

    def _each_row(self, reader: ArgumentReader) -> list[pa.Array]:
        out: list[pa.Array] = []
        for partial in self.layout.partials:
            value, companion = reader.single(partial)
            out.append(as_type(value, partial.type.arrow))
            if partial.companion is not None:
                out.append(companion)
        return out

    def _lift_side(
        self, index: int, groups: list[pa.Array], names: list[str], reader: ArgumentReader
    ) -> pa.RecordBatch:
        side = self.layout.sides[index]
        values = reader.argument(side.argument, None if side.keeps_nulls else side.filter)
        columns = [*groups, values, reader.sequence_of(None)]
        kept = reader.passing(side.filter) if side.keeps_nulls else values.is_valid() if values.null_count else None
        if kept is not None:
            columns = [c.filter(kept) for c in columns]
        if side.distinct:
            columns[-2] = self.encode_side_values(index, columns[-2])
        table = pa.RecordBatch.from_arrays(columns, names=[*names, VALUE, SEQ])
        return _distinct(table) if side.distinct else table

    # partial results → fewer partial results

    def merge(self, bundle: Bundle, *, in_arrival_order: bool = False) -> Bundle:
        """One main row per group and, in side tables, one row per distinct value.

        Args:
            bundle: rows in any order.
            in_arrival_order: rows of one group are known to be in arrival order; saves sorting for first and last values.

        Raises:
            DataError: a decimal sum overflows.
        """
        keys, rows = bundle.keys, bundle.main.num_rows
        sorted_merge = self.layout.is_ordered and not in_arrival_order
        plans = [
            plan_sum(bundle.main.column(p.name), bundle.main.column(p.companion) if p.companion else None)
            if p.merge == "sum" and p.partial == "sum"
            else None
            for p in self.layout.partials
        ]
        if sorted_merge:
            ids, total, first = numbered_groups(keys, rows)
            out_keys = [k.take(first) for k in keys]
            columns = self._merge_sorted(bundle.main, plans, ids, total)
        else:
            pairs = zip(self.layout.partials, plans, strict=True)
            reductions = [r for partial, plan in pairs for r in _merge_reductions(bundle.main, partial, plan)]
            out_keys, columns = reduce_by(keys, rows, reductions)
        main = pa.RecordBatch.from_arrays([*out_keys, *self._assemble(plans, columns)], names=bundle.main.schema.names)
        sides = tuple(
            _distinct(table) if side.distinct else table
            for side, table in zip(self.layout.sides, bundle.sides, strict=True)
        )
        return Bundle(bundle.groups, main, sides)

    def _merge_sorted(
        self, main: pa.RecordBatch, plans: Sequence[SumPlan | None], ids: Slots, total: int
    ) -> list[pa.Array]:
        columns: list[pa.Array] = []
        for partial, plan in zip(self.layout.partials, plans, strict=True):
            reductions = _merge_reductions(main, partial, plan)
            if not partial.is_ordered:
                columns.extend(reduce_ids(ids, total, reductions))
                continue
            order = positions_by_arrival(main.column(partial.companion))
            taken = pa.array(order)
            moved = [Reduction(r.function, r.values.take(taken)) for r in reductions if r.values is not None]
            columns.extend(reduce_ids(ids[order], total, moved))
        return columns

    # partial results → results

    def finish(self, merged: Bundle) -> list[pa.Array]:
        """The aggregates' result columns, one row per main row of a merged bundle.

        Raises:
            DataError: a result does not fit its type; names the aggregate.
        """
        side_ids = [self.side_rows(merged, s) for s in merged.sides]
        return [self._finish_one(use, merged, side_ids) for use in self.layout.uses]

    def _finish_one(self, use: AggregateUse, merged: Bundle, side_ids: list[Slots]) -> pa.Array:
        kernel = use.aggregate.kernel
        if use.side is None:
            columns = []
            for position in use.partials:
                partial = self.layout.partials[position]
                if partial.is_checked_sum and partial.companion is not None:
                    check_carry(merged.main.column(partial.companion), partial.place)
                columns.append(merged.main.column(partial.name))
        else:
            side, ids, groups = merged.sides[use.side], side_ids[use.side], merged.main.num_rows
            if kernel.collect is not None:
                lists = _lists_by_arrival(self.side_values(use.side, side), side.column(SEQ), ids, groups)
                return as_type(kernel.collect(lists, kernel.result), kernel.result.arrow)
            columns = self._fold_distinct(use, self.side_values(use.side, side), side.column(SEQ), ids, groups)
        assert kernel.finish is not None
        return as_type(kernel.finish(columns, kernel.result), kernel.result.arrow)

    def encode_side_values(self, index: int, values: pa.Array) -> pa.Array:
        """Values of a side table as it keeps them."""
        return self.layout.value_codecs[index].encode([values])[0] if self.layout.sides[index].distinct else values

    def side_values(self, index: int, side: pa.RecordBatch) -> pa.Array:
        """Values of a side table in their own type."""
        return self.decode_side_values(index, side.column(VALUE))

    def decode_side_values(self, index: int, values: pa.Array) -> pa.Array:
        """Values in their own type, from what a side table keeps."""
        return self.layout.value_codecs[index].decode([values])[0] if self.layout.sides[index].distinct else values

    def _fold_distinct(
        self, use: AggregateUse, values: pa.Array, seq: pa.Array, ids: Slots, groups: int
    ) -> list[pa.Array]:
        if any(c.is_ordered for c in use.columns):
            order = positions_by_arrival(seq)
            values, seq, ids = values.take(pa.array(order)), seq.take(pa.array(order)), ids[order]
        reader = ArgumentReader.over(values, seq)
        columns = []
        for column in use.columns:
            if column.partial == "sum":
                plan = plan_sum(reader.summands(column))
                value, carry = plan.combine(reduce_ids(ids, groups, plan.reductions), column.place)
                check_carry(carry, column.place)
            else:
                value = reduce_ids(ids, groups, reader.reductions(column)[:1])[0]
            columns.append(as_type(value, column.type.arrow))
        return columns

    @staticmethod
    def side_rows(merged: Bundle, side: pa.RecordBatch) -> Slots:
        """The main row of each row of a side table of a merged bundle."""
        rows = merged.main.num_rows
        keys = [pa.concat_arrays([m, s]) for m, s in zip(merged.keys, side.columns[: merged.groups], strict=True)]
        ids, total = group_ids(keys, rows + side.num_rows)
        row_of = np.zeros(total, np.int64)
        row_of[ids[:rows]] = np.arange(rows)
        found: Slots = row_of[ids[rows:]]
        return found


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _merge_reductions(main: pa.RecordBatch, partial: PartialColumn, plan: SumPlan | None) -> list[Reduction]:
    if plan is not None:
        return list(plan.reductions)
    own = Reduction(partial.merge, main.column(partial.name))
    if not partial.is_ordered:
        return [own]
    return [own, Reduction("min" if partial.merge == "first" else "max", main.column(partial.companion))]


def _distinct(table: pa.RecordBatch) -> pa.RecordBatch:
    """One row per distinct (group, value), with the earliest arrival."""
    keys, columns = reduce_by(table.columns[:-1], table.num_rows, [Reduction("min", table.column(SEQ))])
    return pa.RecordBatch.from_arrays([*keys, *columns], names=table.schema.names)


def _lists_by_arrival(values: pa.Array, seq: pa.Array, ids: Slots, groups: int) -> pa.ListArray:
    order = np.lexsort((seq.to_numpy(), ids))
    offsets = np.zeros(groups + 1, np.int32)
    np.cumsum(np.bincount(ids, minlength=groups), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(order)))
