"""The constraints of a sink's columns, NOT NULL and lengths, enforced on batches; after Apache Flink's `ConstraintEnforcer`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers
from flowrun.core.constraints import (
    Lengths,
    NotNull,
    SinkConstraints,
    is_fixed,
    is_limited,
    length_problem,
    null_problem,
)
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.operators.data_errors import describe_row

NULL_ROWS_DROPPED = "numNullRecordsDropped"
"""Counter of the rows that were dropped for a NULL in a NOT NULL column."""


class ConstraintEnforcer:
    """Enforces the constraints of a schema on batches; `place` (e.g. `sink 'out'`) begins messages."""

    def __init__(self, schema: Schema, constraints: SinkConstraints, place: str) -> None:
        self._constraints = constraints
        self._place = place
        self._schema = schema
        fields = list(enumerate(schema))
        self._missing = [
            (i, f.name, f.type, not f.nullable) for i, f in fields if not f.nullable or self._requires(f.type)
        ]
        has_lengths = constraints.lengths is not Lengths.IGNORE
        self._sized = [(i, f.name, f.type) for i, f in fields if has_lengths and self._limits(f.type)]

    @property
    def refuses(self) -> bool:
        """Whether rows may be an error for another reason than NULL in a NOT NULL column."""
        nested = any(self._requires(type) for _, _, type, _ in self._missing)
        return nested or (bool(self._sized) and self._constraints.lengths is Lengths.ERROR)

    def _requires(self, type: DataType) -> bool:
        """Whether something inside of the type's values may not be NULL and is looked at."""
        if not self._constraints.looks_into(type):
            return False
        return any(type.required) or any(map(self._requires, type.children))

    def _limits(self, type: DataType) -> bool:
        return is_limited(type) or (self._constraints.looks_into(type) and any(map(self._limits, type.children)))

    def enforced(self, batch: RecordBatch) -> tuple[RecordBatch, int]:
        """(the rows that may be written, number of rows dropped).

        Raises:
            DataError: a value may not be written; names column and row.
        """
        batch = self._with_lengths(batch)
        wrong: Bools | None = None
        for index, name, type, required in self._missing:
            missing = self._missing_in(batch.columns.column(index), type, required=required)
            if missing is None:
                continue
            if self._constraints.not_null is NotNull.ERROR:
                row = int(np.flatnonzero(missing)[0])
                message, hint = null_problem(self._place, name, f"row {row} {describe_row(batch.columns, row)}")
                raise DataError(message, row=row, hint=hint)
            wrong = missing if wrong is None else wrong | missing
        if wrong is None:
            return batch, 0
        return batch.filter(pa.array(~wrong)), int(np.count_nonzero(wrong))

    def _missing_in(self, column: pa.Array, type: DataType, *, required: bool) -> Bools | None:
        """Which values are NULL and may not be, or hold such a NULL; None: none."""
        found = _bools(column.is_null()) if required and column.null_count else None
        if not self._requires(type):
            return found
        valid = _bools(column.is_valid())
        for child, child_type, child_required, owners in _inside(column, type):
            inner = self._missing_in(child, child_type, required=child_required)
            if inner is None:
                continue
            hit = inner if owners is None else _any_of(inner, owners, len(column))
            hit = hit & valid  # what is below a NULL is none
            if hit.any():
                found = hit if found is None else found | hit
        return found

    def _with_lengths(self, batch: RecordBatch) -> RecordBatch:
        if not self._sized:
            return batch
        columns = list(batch.columns.columns)
        for index, name, type in self._sized:
            column = columns[index]
            if self._constraints.lengths is Lengths.TRIM_PAD:
                columns[index] = self._fitted(column, type)
                continue
            wrong = self._misfits(column, type)
            if wrong is not None:
                row = int(np.flatnonzero(wrong)[0])
                shown = f"row {row} {describe_row(batch.columns, row)}"
                message, hint = length_problem(self._place, name, type, shown)
                raise DataError(message, row=row, hint=hint)
        return batch.with_columns(pa.RecordBatch.from_arrays(columns, schema=batch.columns.schema))

    def _misfits(self, column: pa.Array, type: DataType) -> Bools | None:
        """Which values have, or hold a value that has, another length than their type; None: none."""
        if is_limited(type):
            compare = pc.not_equal if is_fixed(type) else pc.greater
            wrong = _bools(pc.fill_null(compare(_lengths(column), type.length), False))
            return wrong if wrong.any() else None
        if not self._limits(type):
            return None
        found, valid = None, _bools(column.is_valid())
        for child, child_type, _, owners in _inside(column, type):
            inner = self._misfits(child, child_type)
            if inner is not None:
                hit = (inner if owners is None else _any_of(inner, owners, len(column))) & valid
                if hit.any():
                    found = hit if found is None else found | hit
        return found

    def _fitted(self, column: pa.Array, type: DataType) -> pa.Array:
        """The values cut to their length and, for CHAR and BINARY, filled up."""
        if is_limited(type):
            return fitted_binary(column, type) if pa.types.is_binary(column.type) else fitted_text(column, type)
        if not self._limits(type):
            return column
        if type.root is not TypeRoot.ROW and (column.offset or column.offsets[0].as_py()):
            column = column.take(pa.array(np.arange(len(column))))  # offsets that begin at 0
        mask = column.is_null() if column.null_count else None
        if type.root is TypeRoot.ROW:
            children = [self._fitted(column.field(i), t) for i, t in enumerate(type.children)]
            return pa.StructArray.from_arrays(children, fields=list(column.type), mask=mask)
        if type.root is TypeRoot.MAP:
            keys, items = (
                self._fitted(part, t) for part, t in zip((column.keys, column.items), type.children, strict=True)
            )
            return pa.MapArray.from_arrays(column.offsets, keys, items, type=column.type, mask=mask)
        values = self._fitted(column.values, type.children[0])
        return pa.ListArray.from_arrays(column.offsets, values, type=column.type, mask=mask)


def fitted_text(column: pa.Array, type: DataType) -> pa.Array:
    """Text cut to the length of CHAR(n) or VARCHAR(n), in code points; filled up with spaces for CHAR(n)."""
    cut = pc.utf8_slice_codeunits(column, 0, type.length)
    return pc.utf8_rpad(cut, type.length, " ") if is_fixed(type) else cut


def fitted_binary(column: pa.Array, type: DataType) -> pa.Array:
    """Bytes cut to the length of BINARY(n) or VARBINARY(n); filled up with zeros for BINARY(n)."""
    cut = pc.binary_slice(column, 0, type.length)
    if not is_fixed(type):
        return cut
    assert type.length is not None
    lacking = type.length - pc.fill_null(pc.binary_length(cut), type.length).to_numpy().astype(np.int64)
    sizes, which = np.unique(lacking, return_inverse=True)
    zeros = pa.array([b"\0" * int(n) for n in sizes], column.type).take(pa.array(which))
    return pc.binary_join_element_wise(cut, zeros, pa.scalar(b"", column.type))


def _lengths(column: pa.Array) -> pa.Array:
    return pc.binary_length(column) if pa.types.is_binary(column.type) else pc.utf8_length(column)


def _inside(column: pa.Array, type: DataType) -> list[tuple[pa.Array, DataType, bool, Integers | None]]:
    """(values, their type, whether they may not be NULL, the row that each belongs to; None: the one of its position) of each part."""
    if type.root is TypeRoot.ROW:
        return [(column.field(i), t, type.is_required(i), None) for i, t in enumerate(type.children)]
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    owners = np.repeat(np.arange(len(column)), np.diff(offsets))
    parts = (column.keys, column.items) if type.root is TypeRoot.MAP else (column.values,)
    return [
        (part.slice(first, last - first), t, type.is_required(i), owners)
        for i, (part, t) in enumerate(zip(parts, type.children, strict=True))
    ]


def _any_of(inner: Bools, owners: Integers, rows: int) -> Bools:
    hit = np.zeros(rows, np.bool_)
    hit[owners[inner]] = True
    return hit


def _bools(array: pa.Array) -> Bools:
    found: Bools = array.to_numpy(zero_copy_only=False)
    return found
