"""What the past of each partition amounts to, for frames without a bound: accumulators, counts, and the values that DISTINCT has seen."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.operators.keyed.key_rows import NOWHERE, KeyRows
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.over.evaluation import Carry
from flowrun.operators.over.factories import COUNT, LAST, ORDERS, PROGRESS, PROGRESS_COUNTERS, AppendOverFactory
from flowrun.operators.over.sequence import Sequence


class OverProgress:
    """The past of the partitions of one subtask, by slot.

    Args:
        factory: of the operator.
        slots: of the partitions.
        max_parallelism: number of key groups.
    """

    def __init__(self, factory: AppendOverFactory, slots: KeySlots, max_parallelism: int) -> None:
        self._factory = factory
        assert factory.progress_columns is not None
        self._schema = factory.progress_columns
        keys = range(len(factory.keys))
        self._rows = KeyRows(self._schema, keys, max_parallelism, counters=PROGRESS_COUNTERS, slots=slots)
        self._seen = [_SeenValues(factory, place, max_parallelism) for place in factory.distinct_places]

    # ---- state

    def snapshot(self) -> dict[str, SegmentedTable]:
        """The state tables."""
        tables = {PROGRESS: self._rows.snapshot()}
        for seen in self._seen:
            tables[seen.name] = seen.store.snapshot_table()
        return tables

    def restore(self, restored: OperatorSnapshot) -> tuple[Integers, Integers]:
        """Take back the state tables; gives (slots, time of the last row that was sent)."""
        for seen in self._seen:
            seen.restore(restored)
        table = restored.keyed.get(PROGRESS)
        if table is None or table.num_rows == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        slots, numbers = self._rows.restore(table)
        return slots, self._rows.store.counter(LAST)[numbers]

    # ---- the past

    def carry(self, slots: Integers, sequence: Sequence, keys: list[pa.Array]) -> Carry:
        """What the past of some partitions amounts to. Values that DISTINCT sees for the first time in the sequence are seen then."""
        numbers = self._rows.numbers(slots)
        known = numbers != NOWHERE
        positions = np.cumsum(known) - 1
        taken = self._rows.store.take_columns(numbers[known], range(len(self._factory.keys), len(self._schema)))
        columns = [c.take(pa.array(positions, mask=~known)) for c in taken]
        accumulators: list[list[pa.Array]] = []
        at = 0
        for aggregate in self._factory.aggregates:
            own = [] if aggregate.kernel.collect is not None else list(aggregate.kernel.accumulators)
            kept = columns[at : at + len(own)]
            at += len(own)
            # nothing is 0 of sums and counts, NULL of other values
            accumulators.append(
                [c.fill_null(pa.scalar(0, c.type)) if a.merge == "sum" else c for a, c in zip(own, kept, strict=True)]
            )
        unseen = {seen.place: seen.first_seen(sequence, keys) for seen in self._seen}
        return Carry(accumulators, unseen)

    def places(self, slots: Integers) -> tuple[Integers, Integers]:
        """(rows that were sent, different times that they had) of some partitions."""
        numbers = self._rows.numbers(slots)
        known = numbers != NOWHERE
        found = []
        for name in (COUNT, ORDERS):
            counts = np.zeros(len(slots), np.int64)
            counts[known] = self._rows.store.counter(name)[numbers[known]]
            found.append(counts)
        return found[0], found[1]

    def replace(
        self,
        slots: Integers,
        keys: list[pa.Array],
        accumulators: list[list[pa.Array]],
        counts: Integers,
        orders: Integers,
        last: Integers,
    ) -> None:
        """What the past amounts to now."""
        columns = [*keys, *(a for own in accumulators for a in own)]
        if not columns:  # without keys and accumulators there is still a row
            columns = [pa.nulls(len(slots), pa.int8())]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema.arrow)
        self._rows.replace(slots, rows, **{LAST: last, COUNT: counts, ORDERS: orders})

    def compact(self) -> None:
        """Let go of what was replaced, now and then."""
        self._rows.compact()


class _SeenValues:
    """The values that one DISTINCT aggregate has seen, by partition."""

    def __init__(self, factory: AppendOverFactory, place: int, max_parallelism: int) -> None:
        self.place = place
        self.name = factory.distinct_table(place)
        self._aggregate = factory.aggregates[place]
        self._schema = factory.distinct_columns(place)
        width = len(self._schema)
        self._slots = KeySlots.of(self._schema, range(width))
        self.store = RowStore(self._schema, range(width - 1), max_parallelism, by_key=False)

    def restore(self, restored: OperatorSnapshot) -> None:
        """Take back the values."""
        table = restored.keyed.get(self.name)
        if table is not None and table.num_rows:
            numbers = self.store.restore(table)
            self._slots.locate(self.store.take(numbers).columns, len(numbers))

    def first_seen(self, sequence: Sequence, keys: list[pa.Array]) -> Bools:
        """Which rows of a sequence have a value that their partition has not seen before."""
        unseen = np.zeros(len(sequence), np.bool_)
        assert self._aggregate.argument is not None
        values = sequence.column(self._aggregate.argument)
        counts = np.zeros(len(sequence), np.bool_)
        counts[sequence.targets] = True
        counts &= values.is_valid().to_numpy(zero_copy_only=False)
        if self._aggregate.filter is not None:
            counts &= sequence.column(self._aggregate.filter).fill_null(False).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(counts)
        owners = pa.array(sequence.owners[rows])
        columns = [*(k.take(owners) for k in keys), values.take(pa.array(rows))]
        known = len(self._slots)
        located = self._slots.locate(columns, len(rows))
        new = located.slots >= known
        first = np.full(len(located.slots), len(rows), np.int64)
        first[located.local[::-1]] = np.arange(len(rows) - 1, -1, -1)  # of several rows of a value the first one stays
        chosen = first[new]
        unseen[rows[chosen]] = True
        taken = pa.array(chosen)
        self.store.append(pa.RecordBatch.from_arrays([c.take(taken) for c in columns], schema=self._schema.arrow))
        return unseen
