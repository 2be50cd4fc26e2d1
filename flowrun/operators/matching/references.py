"""The columns that conditions and measures look at, for many partial matches at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.layout import PartialLayout
from flowrun.operators.keyed.integers import ranges
from flowrun.operators.matching.pattern import Anchor, RangeAggregate, Reference, RowReference

_OWNER = "owner"


@record
class OrderedRows:
    """The rows that are searched: by key, then in the order of the pattern.

    Attributes:
        columns: the rows.
        times: event time of each, int64 ms.
        begins: for each row the first one of its key; `ends`: one past the last.
    """

    schema: Schema
    columns: pa.RecordBatch
    times: Integers
    begins: Integers
    ends: Integers

    def __len__(self) -> int:
        return len(self.times)


@dataclass(slots=True)
class Partials:
    """Partial matches, one an entry. As rows of a match follow each other, a variable has a range of rows.

    Attributes:
        start: first row. `last`: the row taken last.
        variable: the variable that took it.
        first: n × variables: first row of each, meaningless where `count` (of the same shape) is 0.
    """

    start: Integers
    last: Integers
    variable: Integers
    first: Integers
    count: Integers

    def __len__(self) -> int:
        return len(self.start)

    def take(self, which: Integers | Bools) -> Partials:
        """Some of them."""
        return Partials(self.start[which], self.last[which], self.variable[which], self.first[which], self.count[which])

    def advanced(self, variable: int) -> Partials:
        """After the next row was taken as `variable`."""
        first, count = self.first.copy(), self.count.copy()
        row = self.last + 1
        first[:, variable] = np.where(count[:, variable] == 0, row, first[:, variable])
        count[:, variable] += 1
        return Partials(self.start, row, np.full(len(self), variable), first, count)

    @staticmethod
    def joined(parts: Sequence[Partials]) -> Partials:
        """Several, one after the other."""
        return Partials(
            np.concatenate([p.start for p in parts]),
            np.concatenate([p.last for p in parts]),
            np.concatenate([p.variable for p in parts]),
            np.concatenate([p.first for p in parts]),
            np.concatenate([p.count for p in parts]),
        )


class ReferenceReader:
    """Evaluates references over partial matches. One for each condition and for the measures; may be used again and again."""

    def __init__(self, references: Sequence[Reference], schema: Schema) -> None:
        self._references = tuple(references)
        self._engines = [_engine(r, schema) if isinstance(r, RangeAggregate) else None for r in references]

    def read(self, rows: OrderedRows, partials: Partials) -> pa.RecordBatch:
        """One column a reference, one row a partial match. Raises `DataError` if an aggregate overflows."""
        columns = [
            _referred(rows, partials, reference)
            if isinstance(reference, RowReference)
            else _aggregated(rows, partials, reference, engine)
            for reference, engine in zip(self._references, self._engines, strict=True)
        ]
        if not columns:  # a batch needs one column to have a length
            columns = [pa.array(partials.start)]
        return pa.RecordBatch.from_arrays(columns, names=[f"r{i}" for i in range(len(columns))])


def _bounds(partials: Partials, variable: int | None) -> tuple[Integers, Integers]:
    """First row and number of rows of a variable, or of the match so far."""
    if variable is None:
        return partials.start, partials.last - partials.start + 1
    return partials.first[:, variable], partials.count[:, variable]


def _referred(rows: OrderedRows, partials: Partials, reference: RowReference) -> pa.Array:
    if reference.anchor is Anchor.PREVIOUS:
        wanted = partials.last - reference.offset
        there = wanted >= rows.begins[partials.last]
    else:
        first, count = _bounds(partials, reference.variable)
        there = count > reference.offset
        wanted = first + reference.offset if reference.anchor is Anchor.FIRST else first + count - 1 - reference.offset
    column = rows.columns.column(reference.column)
    if there.all():
        return column.take(pa.array(wanted))
    return column.take(pa.array(np.where(there, wanted, 0), mask=~there))


def _engine(reference: RangeAggregate, schema: Schema) -> AggregationEngine:
    name = _OWNER
    while name in schema.names:
        name += "_"
    with_owner = Schema((*schema.fields, Field(name, BIGINT)))
    return AggregationEngine(PartialLayout.of(with_owner, (len(schema),), (reference.aggregate,)))


def _aggregated(
    rows: OrderedRows, partials: Partials, reference: RangeAggregate, engine: AggregationEngine | None
) -> pa.Array:
    """One result for each partial match; that of no rows where the variable has none."""
    assert engine is not None
    first, count = _bounds(partials, reference.variable)
    members = ranges(first, count)
    owners = np.repeat(np.arange(len(partials)), count)
    batch = rows.columns.take(pa.array(members))
    with_owner = pa.RecordBatch.from_arrays([*batch.columns, pa.array(owners)], schema=engine.layout.input_schema.arrow)
    bundle = engine.merge(engine.lift(with_owner, 0))
    (results,) = engine.finish(bundle)
    kernel = reference.aggregate.kernel
    places = np.full(len(partials), -1, np.int64)
    places[engine.decode_keys(bundle.keys)[0].to_numpy()] = np.arange(len(results))
    there = places >= 0
    taken = (
        results.take(pa.array(np.where(there, places, 0), mask=~there))
        if len(results)
        else pa.nulls(len(partials), kernel.result.arrow)
    )
    return taken.fill_null(0) if kernel.function == "COUNT" else taken
