"""Aggregation of each batch before the shuffle of a group aggregation: one partial row a group, or a few for its different values.

A partial row carries what to add to a group: rows, accumulators, and for each set of values one value with what to add to its counts.
Rows that are taken back are negative amounts; a group whose amounts are all zero is not sent. When keys hardly repeat, each row becomes
a partial row by itself. Nothing is held back: what a batch brings is sent with it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.elements import RecordBatch
from flowrun.operators.aggregation.numbering import by_appearance, first_rows
from flowrun.operators.aggregation.reduction import ReductionSampler
from flowrun.operators.base import AbstractOperator
from flowrun.operators.updating.accumulators import LoggedValue, accumulator_of
from flowrun.operators.updating.factories import LocalGroupAggregateFactory
from flowrun.operators.updating.group_feeds import RowFeed, SetRows, summed_by


class LocalGroupAggregateOperator(AbstractOperator):
    """Sends partial rows; see the module. Has no state."""

    def __init__(self, factory: LocalGroupAggregateFactory) -> None:
        self._layout = factory.layout
        self._schema = factory.output_schema.arrow
        self._accumulators = [accumulator_of(c.column) for c in factory.layout.row_columns]
        self._sampler = ReductionSampler()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Fold rows by key, or pass each on as a partial row."""
        feed = RowFeed(self._layout, batch)
        keys = feed.keys()
        rows = feed.num_rows
        if self._sampler.worthwhile(rows):
            ids, total = by_appearance(self._layout.key_codec.encode(keys), rows)
            self._sampler.observe(rows, total)
        else:
            ids, total = np.arange(rows), rows
        columns = [k.take(pa.array(first_rows(ids, total))) if total < rows else k for k in keys]
        amounts = feed.rows(ids, total)
        columns.append(pa.array(amounts))
        something = amounts != 0
        for number, accumulator in enumerate(self._accumulators):
            if isinstance(accumulator, LoggedValue):
                accumulator.clear()
            words = feed.fold(number, accumulator, np.tile(np.array(accumulator.initial, np.int64), (total, 1)), ids)
            something |= (words != accumulator.initial).any(axis=1)
            columns += accumulator.partials(words)
        pairs = [self._pairs(number, feed.set_rows(number, ids), total) for number in range(len(self._layout.sets))]
        self._send(columns, something, pairs)

    def _pairs(self, number: int, rows: SetRows, total: int) -> SetRows:
        """Each different value of each group once, with all that is added to its counts, in order of the groups."""
        codec = self._layout.set_codecs[number]
        encoded = codec.encode([pa.array(rows.ids), rows.values])
        if total > 1 and len(rows.ids) == total and (rows.ids[1:] > rows.ids[:-1]).all():
            return rows
        ids, distinct = by_appearance(encoded, len(rows.ids))
        deltas = summed_by(ids, rows.deltas, distinct)
        firsts = first_rows(ids, distinct)
        kept = deltas.any(axis=1)
        if not self._layout.retracting:
            deltas = np.minimum(deltas, 1)
        firsts, deltas = firsts[kept], deltas[kept]
        order = np.argsort(rows.ids[firsts], kind="stable")
        firsts = firsts[order]
        return SetRows(rows.ids[firsts], rows.values.take(pa.array(firsts)), deltas[order])

    def _send(self, columns: list[pa.Array], something: npt.NDArray[np.bool_], pairs: list[SetRows]) -> None:
        """The n-th partial row of a group carries its n-th value of each set; the first one its accumulators, too.

        The first rows of all groups come first, then the others: those have NULL for accumulators.
        """
        total = len(something)
        needed = something.astype(np.int64)
        counts = [np.bincount(p.ids, minlength=total) for p in pairs]
        for count in counts:
            np.maximum(needed, count, out=needed)
        present = needed > 0
        if not present.any():
            return
        if not present.all():
            chosen = pa.array(present)
            columns = [c.filter(chosen) for c in columns]
        more = np.maximum(needed - 1, 0)
        extra = int(more.sum())
        keys = len(self._layout.keys)
        if extra:
            owners = pa.array(np.repeat(np.arange(len(columns[keys])), more[present]))
            nothing = len(owners)
            columns = [pa.concat_arrays([c, c.take(owners)]) for c in columns[:keys]] + [
                pa.concat_arrays([c, pa.nulls(nothing, c.type)]) for c in columns[keys:]
            ]
        firsts = np.cumsum(present) - 1
        others = int(np.count_nonzero(present)) + np.cumsum(more) - more
        size = len(columns[keys])
        for pair, count in zip(pairs, counts, strict=True):
            nth = np.arange(len(pair.ids)) - (np.cumsum(count) - count)[pair.ids]
            source = np.full(size, -1, np.int64)
            source[np.where(nth == 0, firsts[pair.ids], others[pair.ids] + nth - 1)] = np.arange(len(pair.ids))
            taken = pa.array(source, mask=source < 0)
            columns.append(pair.values.take(taken))
            columns += [pa.array(np.ascontiguousarray(d)).take(taken) for d in pair.deltas.T]
        self.output.emit(RecordBatch(pa.RecordBatch.from_arrays(columns, schema=self._schema)))
