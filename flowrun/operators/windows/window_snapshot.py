"""How window operators write their state as tables and read it back, at any parallelism.

Keyed tables start with the key group and the key columns, then `slice_end` (or a session's bounds), then partial columns; a side
table has `value` and `seq` (arrival number) instead. A one-row operator state `progress` says up to which event time a
subtask's windows had fired and for which key groups, so that a new subtask neither fires again nor forgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import KEY_GROUP_COLUMN, KeyGroupRange, OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.elements import MIN_TIMESTAMP
from flowrun.errors import StateError
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.engine import SEQ, VALUE, AggregationEngine
from flowrun.state.key_groups import key_groups_or_zero

PARTIALS = "partials"
PROGRESS = "progress"
_PROGRESS_SCHEMA = pa.schema(
    [("key_group_start", pa.int32()), ("key_group_stop", pa.int32()), ("fired", pa.int64()), ("sequence", pa.int64())]
)


def side_state(index: int) -> str:
    """Name of the state table of a layout's side table."""
    return f"values_{index}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the windows of key groups had fired.

    Attributes:
        ranges: (key groups, event time up to which windows had fired), one per old subtask.
        sequence: an arrival number above all in the state.
    """

    ranges: tuple[tuple[KeyGroupRange, int], ...] = ()
    sequence: int = 0

    @classmethod
    def read(cls, snapshot: OperatorSnapshot) -> Progress:
        """From a snapshot's operator state; nothing had fired if there is none."""
        state = snapshot.operator.get(PROGRESS)
        rows = [] if state is None else state.rows.to_pylist()
        ranges = tuple((KeyGroupRange(r["key_group_start"], r["key_group_stop"]), r["fired"]) for r in rows)
        return cls(ranges, max((r["sequence"] for r in rows), default=0))

    def as_state(self) -> OperatorState:
        """The operator state of one subtask; every new subtask reads those of all."""
        rows = [
            {"key_group_start": g.start, "key_group_stop": g.stop, "fired": fired, "sequence": self.sequence}
            for g, fired in self.ranges
        ]
        return OperatorState(pa.Table.from_pylist(rows, schema=_PROGRESS_SCHEMA), Redistribution.UNION)

    def within(self, groups: KeyGroupRange) -> Progress:
        """The part that concerns some key groups."""
        cut = (
            (KeyGroupRange(max(old.start, groups.start), min(old.stop, groups.stop)), fired)
            for old, fired in self.ranges
        )
        return Progress(tuple((g, fired) for g, fired in cut if g.start < g.stop), self.sequence)

    def advanced(self, groups: KeyGroupRange, fired: int, sequence: int) -> Progress:
        """The progress of a subtask that restored this one and has itself come to event time `fired`."""
        if self.most <= fired:
            return Progress(((groups, fired),), sequence)
        return Progress(tuple((g, max(ahead, fired)) for g, ahead in self.ranges), sequence)

    @property
    def least(self) -> int:
        """The event time that all key groups have reached."""
        return min((fired for _, fired in self.ranges), default=MIN_TIMESTAMP)

    @property
    def most(self) -> int:
        """The event time that some key group has reached."""
        return max((fired for _, fired in self.ranges), default=MIN_TIMESTAMP)

    def fired_of(self, row_groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """The event time that each key group had reached."""
        reached = np.full(len(row_groups), MIN_TIMESTAMP, np.int64)
        for old, time in self.ranges:
            reached[(row_groups >= old.start) & (row_groups < old.stop)] = time
        return reached


@dataclass(slots=True)
class StateWriter:
    """Turns bundles into state tables. Batches are cached by identity, so that an unchanged bundle costs nothing again."""

    engine: AggregationEngine
    max_parallelism: int
    _cache: dict[int, tuple[pa.RecordBatch, pa.RecordBatch]] = field(default_factory=dict)
    _used: dict[int, tuple[pa.RecordBatch, pa.RecordBatch]] = field(default_factory=dict)

    def begin(self) -> None:
        """Start a snapshot: what the last one used is kept, the rest is forgotten."""
        self._cache, self._used = self._used, {}

    def tables(
        self, parts: Sequence[tuple[Sequence[tuple[str, int]], Bundle]], bounds: Sequence[str] = ()
    ) -> dict[str, pa.Table]:
        """State tables of bundles.

        Args:
            parts: (constant columns that follow the keys, bundle grouped by keys and then `bounds`).
            bounds: names of the int64 group columns after the keys.
        """
        layout = self.engine.layout
        values = [*bounds, *layout.partial_names]
        tables = {PARTIALS: _table([self._batch(b.main, constants, values) for constants, b in parts])}
        for index in range(len(layout.sides)):
            names = [*bounds, VALUE, SEQ]
            tables[side_state(index)] = _table([self._batch(b.sides[index], c, names, index) for c, b in parts])
        return {name: table for name, table in tables.items() if table is not None}

    def _batch(
        self, table: pa.RecordBatch, constants: Sequence[tuple[str, int]], names: Sequence[str], side: int | None = None
    ) -> pa.RecordBatch:
        cached = self._cache.get(id(table)) or self._used.get(id(table))
        if cached is not None and cached[0] is table:
            self._used[id(table)] = cached
            return cached[1]
        rows, key_count = table.num_rows, len(self.engine.key_names)
        keys = self.engine.decode_keys(table.columns[:key_count])
        values = list(table.columns[key_count:])
        if side is not None:
            values[-2] = self.engine.side_values(side, table)
        group = key_groups_or_zero(keys, rows, self.max_parallelism)
        filled = [pa.array(np.full(rows, v, np.int64)) for _, v in constants]
        key_names = self.engine.layout.transport_schema.names[: len(keys)]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(group), *keys, *filled, *values],
            names=[KEY_GROUP_COLUMN, *key_names, *(n for n, _ in constants), *names],
        )
        self._used[id(table)] = (table, batch)
        return batch


def _table(batches: list[pa.RecordBatch]) -> pa.Table | None:
    filled = [b for b in batches if b.num_rows]
    return pa.Table.from_batches(filled) if filled else None


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """Restored partial results of one slice whose windows had fired up to `fired`."""

    slice_end: int
    fired: int
    bundle: Bundle


def read_bundle(
    engine: AggregationEngine, snapshot: OperatorSnapshot, extra: Sequence[str]
) -> tuple[Bundle, npt.NDArray[np.int32]]:
    """(bundle whose leading group columns are the `extra` columns of all tables, key group of each main row).

    Raises:
        StateError: a table does not have the columns that these aggregates need.
    """
    layout = engine.layout
    main, groups = _read(engine, snapshot, PARTIALS, extra, layout.partial_names, layout.partial_types)
    sides = []
    for index in range(len(layout.sides)):
        kind = layout.sides[index].type.arrow
        side, _ = _read(engine, snapshot, side_state(index), extra, (VALUE, SEQ), (kind, pa.int64()))
        columns = side.columns
        columns[-2] = engine.encode_side_values(index, columns[-2])
        sides.append(pa.RecordBatch.from_arrays(columns, names=side.schema.names))
    return Bundle(len(extra) + len(engine.key_names), main, tuple(sides)), groups


def _read(
    engine: AggregationEngine,
    snapshot: OperatorSnapshot,
    name: str,
    extra: Sequence[str],
    values: Sequence[str],
    types: Sequence[pa.DataType],
) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
    keys = engine.layout.transport_schema.names[: len(engine.layout.keys)]
    wanted = [KEY_GROUP_COLUMN, *keys, *extra, *values]
    table = snapshot.keyed.get(name)
    if table is None:
        kinds = [pa.int32(), *(f.type.arrow for f in engine.layout.key_fields), *[pa.int64()] * len(extra), *types]
        table = pa.schema(list(zip(wanted, kinds, strict=True))).empty_table()
    if table.schema.names != wanted:
        raise StateError(
            f"state table '{name}' of a window has columns {', '.join(table.schema.names)}; expected {', '.join(wanted)}",
            hint="the aggregates or keys changed since the snapshot; give the step another uid to start it empty",
        )
    batch = (
        table.combine_chunks().to_batches()[0]
        if table.num_rows
        else pa.RecordBatch.from_pylist([], schema=table.schema)
    )
    groups = batch.column(0).to_numpy()
    key_columns = engine.encode_keys(batch.columns[1 : 1 + len(keys)], batch.num_rows)
    rest = batch.columns[1 + len(keys) :]
    names = [*extra, *engine.key_names, *values]
    return pa.RecordBatch.from_arrays([*rest[: len(extra)], *key_columns, *rest[len(extra) :]], names=names), groups


def restored_slices(
    engine: AggregationEngine, snapshot: OperatorSnapshot, progress: Progress, slice_column: str
) -> Iterator[RestoredPart]:
    """The partial results of a snapshot by slice and by how far their old subtask had come."""
    whole, groups = read_bundle(engine, snapshot, [slice_column])
    fired = progress.fired_of(groups)
    side_fired = [progress.fired_of(_side_groups(snapshot, i)) for i in range(len(whole.sides))]
    for time in np.unique(fired).tolist():
        part = whole.filter(fired == time, [f == time for f in side_fired])
        for slice_end, bundle in part.split_leading():
            yield RestoredPart(slice_end, time, bundle)


def _side_groups(snapshot: OperatorSnapshot, index: int) -> npt.NDArray[np.int32]:
    table = snapshot.keyed.get(side_state(index))
    if table is None or not table.num_rows:
        return np.zeros(0, np.int32)
    groups: npt.NDArray[np.int32] = pc.cast(table[KEY_GROUP_COLUMN], pa.int32()).to_numpy()
    return groups
