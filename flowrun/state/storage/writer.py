"""Writing the snapshots of one operator of one subtask: new segments only, and now and then what makes old files worth keeping.

A table in segments has some files. Each new checkpoint adds at most one, with the segments that the last completed one did not have.
A file is written anew, its live segments into the new file, once less than half of its rows count, and the smallest files are when there
are many of them. So the rows on disk are at most about twice those that count, and files stay few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from flowrun.api.state import KeyGroupRange, OperatorSnapshot, SegmentedTable, StateSegment
from flowrun.core.elements import CheckpointKind
from flowrun.core.record import record
from flowrun.errors import InternalError
from flowrun.state.checkpoints import FORMAT_VERSION, FileReference, KeyedTableState, OperatorSubtaskState, StateFile
from flowrun.state.storage.folding import fold_segments, key_columns, segmented_schema, with_segment
from flowrun.state.storage.names import state_file_name
from flowrun.state.storage.parquet_write import write_keyed_rows
from flowrun.state.storage.segment_numbers import numbers_for
from flowrun.state.storage.state_path import StatePath

_MOST_FILES = 16
_MERGED_FILES = 4


@record
class _Placed:
    """Where a segment is: its number, and its file unless it has no rows."""

    number: int
    file: StateFile | None
    rows: int


@record
class _Memory:
    """What one checkpoint wrote or referred to."""

    segments: Mapping[str, Mapping[StateSegment, _Placed]] = field(default_factory=dict)
    tables: Mapping[str, tuple[pa.Table, Identity, StateFile]] = field(default_factory=dict)


class KeyedWriter:
    """`SnapshotWriter` for Parquet files.

    Args:
        operator_id: of the operator.
        name: of the operator.
        subtask: that it is in.
        groups: key groups of the subtask.
        root: the job's folder.
    """

    def __init__(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange, root: StatePath) -> None:
        self._operator_id = operator_id
        self._name = name
        self._subtask = subtask
        self._groups = groups
        self._root = root
        self._last = _Memory()
        self._pending: dict[int, _Memory] = {}
        self._next_number: dict[str, int] = {}
        self._written: list[StatePath] = []

    def write(
        self, checkpoint_id: int, target: str, kind: CheckpointKind, snapshot: OperatorSnapshot
    ) -> OperatorSubtaskState:
        """Write what is new; see `SnapshotWriter.write`."""
        folder = self._root.located(target)
        self._written = []
        try:
            if kind is CheckpointKind.SAVEPOINT:
                keyed = self._whole(folder, snapshot)
            else:
                keyed, memory = self._incremental(folder, snapshot)
                self._pending[checkpoint_id] = memory
        except BaseException:
            for file in self._written:
                file.remove_quietly()
            raise
        return OperatorSubtaskState(self._operator_id, keyed, dict(snapshot.operator))

    def completed(self, checkpoint_id: int) -> None:
        """Let later checkpoints refer to the files of this one; see `SnapshotWriter.completed`."""
        memory = self._pending.get(checkpoint_id)
        if memory is not None:
            self._last = memory
            self._pending = {n: m for n, m in self._pending.items() if n > checkpoint_id}

    # ---- savepoints

    def _whole(self, folder: StatePath, snapshot: OperatorSnapshot) -> dict[str, KeyedTableState]:
        tables = dict(snapshot.keyed)
        for name, table in snapshot.segmented.items():
            tables[name] = fold_segments(table, self._groups)
        states = {}
        for name, rows in tables.items():
            file = self._file(folder, "", name, rows, key_columns(rows.schema))
            states[name] = KeyedTableState(rows.schema, () if file is None else (FileReference(file),))
        return states

    # ---- checkpoints

    def _incremental(self, folder: StatePath, snapshot: OperatorSnapshot) -> tuple[dict[str, KeyedTableState], _Memory]:
        states: dict[str, KeyedTableState] = {}
        tables: dict[str, tuple[pa.Table, Identity, StateFile]] = {}
        segments: dict[str, Mapping[StateSegment, _Placed]] = {}
        for name, rows in snapshot.keyed.items():
            file, identity = self._table(folder, name, rows)
            states[name] = KeyedTableState(rows.schema, () if file is None else (FileReference(file),))
            if file is not None:
                tables[name] = (rows, identity, file)
        for name, table in snapshot.segmented.items():
            placed = self._segments(folder, name, table)
            segments[name] = placed
            states[name] = KeyedTableState(table.schema, _references(placed.values()), table.key)
        return states, _Memory(segments, tables)

    def _table(self, folder: StatePath, name: str, rows: pa.Table) -> tuple[StateFile | None, Identity]:
        identity = identity_of(rows)
        known = self._last.tables.get(name)
        if known is not None and known[1] == identity and known[0].schema.equals(rows.schema, check_metadata=True):
            return known[2], identity
        return self._file(folder, f"{folder.name}/", name, rows, key_columns(rows.schema)), identity

    def _segments(self, folder: StatePath, name: str, table: SegmentedTable) -> dict[StateSegment, _Placed]:
        known = self._last.segments.get(name, {})
        kept = {s: known[s] for s in table.segments if s in known}
        numbers, next_number = numbers_for(
            [kept[s].number if s in kept else None for s in table.segments],
            self._next_number.get(name, 0),
            ordered=table.key is not None,
        )
        self._next_number[name] = next_number
        number_of = dict(zip(table.segments, numbers, strict=True))
        kept = {s: p for s, p in kept.items() if p.number == number_of[s]}  # else all numbers are new
        rewritten = _worth_rewriting(list(kept.values()), any(s not in kept for s in table.segments))
        kept = {s: p for s, p in kept.items() if p.file is None or p.file.path not in rewritten}
        fresh = [s for s in table.segments if s not in kept]
        placed = dict(kept)
        parts = []
        for segment in fresh:
            rows = segment.rows()
            if not rows.schema.equals(table.schema):
                raise InternalError(
                    f"a segment of state '{name}' of '{self._name}' has the columns {rows.schema}, the table {table.schema}"
                )
            parts.append(with_segment(rows, number_of[segment]))
        schema = segmented_schema(table.schema)
        if parts:
            all_rows = pa.concat_tables(parts).replace_schema_metadata(schema.metadata)
            keys = key_columns(table.schema) if table.key is None else table.key
            file = self._file(folder, f"{folder.name}/", name, all_rows, keys)
            for segment, part in zip(fresh, parts, strict=True):
                placed[segment] = _Placed(number_of[segment], file if part.num_rows else None, part.num_rows)
        return placed

    def _file(self, folder: StatePath, prefix: str, name: str, rows: pa.Table, keys: Sequence[str]) -> StateFile | None:
        if rows.num_rows == 0:
            return None
        file_name = state_file_name(self._name, self._operator_id, name, self._subtask)
        notes = {
            "flowrun.format": str(FORMAT_VERSION),
            "flowrun.operator": self._name,
            "flowrun.operator_id": self._operator_id,
            "flowrun.subtask": str(self._subtask),
            "flowrun.table": name,
        }
        file = write_keyed_rows(folder / file_name, prefix + file_name, rows, keys, self._groups, notes)
        self._written.append(folder / file_name)
        return file


def _worth_rewriting(kept: Sequence[_Placed], grows: bool) -> set[str]:
    """Paths of the files whose live segments are to be written into the new file."""
    live: dict[str, int] = {}
    rows: dict[str, int] = {}
    for placed in kept:
        if placed.file is not None:
            live[placed.file.path] = live.get(placed.file.path, 0) + placed.rows
            rows[placed.file.path] = placed.file.rows
    dead = {path for path, count in live.items() if 2 * count < rows[path]}
    rest = sorted((path for path in live if path not in dead), key=lambda path: (live[path], path))
    if len(rest) + (1 if grows or dead else 0) > _MOST_FILES:
        return dead | set(rest[:_MERGED_FILES])
    return dead


def _references(placed: Iterable[_Placed]) -> tuple[FileReference, ...]:
    by_path: dict[str, tuple[StateFile, list[int]]] = {}
    for segment in sorted(placed, key=lambda p: p.number):
        if segment.file is not None:
            by_path.setdefault(segment.file.path, (segment.file, []))[1].append(segment.number)
    return tuple(FileReference(file, tuple(numbers)) for file, numbers in by_path.values())


Identity = tuple[object, ...]


def identity_of(table: pa.Table) -> Identity:
    """Equal for tables over the same memory, as long as one of them is held.

    >>> table = pa.table({"a": [1, 2]})
    >>> identity_of(table) == identity_of(table.slice(0)), identity_of(table) == identity_of(table.slice(1))
    (True, False)
    """
    return tuple(tuple(_array(chunk) for chunk in column.chunks) for column in table.columns)


def _array(array: pa.Array) -> Identity:
    addresses = tuple(None if b is None else b.address for b in array.buffers())
    return (len(array), array.offset, addresses, *(_array(child) for child in _children(array)))


def _children(array: pa.Array) -> list[pa.Array]:
    """Parts that have an offset of their own."""
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if pa.types.is_dictionary(kind):
        return [array.dictionary]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [array.values]
    return []
