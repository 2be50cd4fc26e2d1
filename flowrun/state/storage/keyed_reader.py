"""Reading the keyed tables of checkpoints and savepoints: exactly some key groups, exactly the rows that count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import KEY_GROUP_COLUMN, KeyGroupRange
from flowrun.errors import StateError
from flowrun.state.checkpoints import FileReference, KeyedTableState, StateFile
from flowrun.state.storage.folding import SEGMENT_COLUMN, fold, live_segments, restored_schema, segmented_schema
from flowrun.state.storage.grouped_rows import runs_of_groups
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.parquet_types import as_schema
from flowrun.state.storage.state_path import StatePath

_PIECE = 2_000_000
"""Rows of a log that are folded at a time, so that the memory this takes is soon used again."""


def read_keyed_rows(tables: Sequence[KeyedTableState], groups: KeyGroupRange | None, root: StatePath) -> pa.Table:
    """What operators restore of a table: the rows of some key groups (of all, if None) out of those of several old subtasks.

    Raises:
        DamagedFileError: a file is missing, truncated or altered.
    """
    return pa.concat_tables([_table(table, groups, root) for table in tables])


def _table(table: KeyedTableState, groups: KeyGroupRange | None, root: StatePath) -> pa.Table:
    files = [r for r in table.files if groups is None or _may_hold(r, groups)]
    if not files:
        return restored_schema(table.schema).empty_table()
    if table.key is not None:
        return _log(table, table.key, files, groups, root)
    return pa.concat_tables([_bag(table, r, groups, root) for r in files])


def _may_hold(reference: FileReference, groups: KeyGroupRange) -> bool:
    held = reference.file.groups
    return held is None or (held.start < groups.stop and groups.start < held.stop)


def _bag(table: KeyedTableState, reference: FileReference, groups: KeyGroupRange | None, root: StatePath) -> pa.Table:
    with _open(reference, root) as file:
        if reference.live is None:
            return as_schema(file.rows(groups), table.schema)
        return _live(table, reference, file, groups).drop_columns([SEGMENT_COLUMN])


def _log(
    table: KeyedTableState,
    key: tuple[str, ...],
    files: Sequence[FileReference],
    groups: KeyGroupRange | None,
    root: StatePath,
) -> pa.Table:
    """Folds some key groups of the largest file at a time, together with the rows that all other files have for them."""
    largest = max(files, key=lambda r: r.file.rows)
    others = [segmented_schema(table.schema).empty_table()]
    for reference in files:
        if reference is not largest:
            with _open(reference, root) as file:
                others.append(_live(table, reference, file, groups))
    rest = pa.concat_tables(others)
    rest_groups = rest[KEY_GROUP_COLUMN].to_numpy()
    folded = [restored_schema(table.schema).empty_table()]
    with _open(largest, root) as file:
        for some in _pieces(largest.file, groups):
            mine = rest.filter(pa.array((rest_groups >= some.start) & (rest_groups < some.stop)))
            folded.append(fold(pa.concat_tables([_live(table, largest, file, some), mine]), key, some))
    return pa.concat_tables(folded)


def _open(reference: FileReference, root: StatePath) -> StateFileReader:
    return StateFileReader(root.below(reference.file.path), reference.file)


def _live(
    table: KeyedTableState, reference: FileReference, file: StateFileReader, groups: KeyGroupRange | None
) -> pa.Table:
    """The live rows of a file of a table in segments, `SEGMENT_COLUMN` last."""
    if reference.live is None:
        raise StateError(
            f"the state file '{reference.file.path}' is part of a log, but the metadata say not which rows count"
        )
    return live_segments(as_schema(file.rows(groups), segmented_schema(table.schema)), reference.live)


def _pieces(file: StateFile, groups: KeyGroupRange | None) -> Iterator[KeyGroupRange]:
    """The wanted key groups, cut so that each piece has about `_PIECE` rows of a file; those outside the file are in the outer pieces."""
    held = file.groups
    if held is None:
        raise StateError(
            f"the state file '{file.path}' is part of a log, but the metadata say not where its key groups are"
        )
    wanted = held if groups is None else groups
    start, stop = max(wanted.start, held.start), min(wanted.stop, held.stop)
    if start >= stop:
        yield wanted
        return
    offsets = np.array(file.offsets[start - held.start : stop - held.start + 1])
    cuts = [start + first for first, _ in runs_of_groups(offsets - offsets[0], _PIECE)][1:]
    for first, last in zip([wanted.start, *cuts], [*cuts, wanted.stop], strict=True):
        yield KeyGroupRange(first, last)
