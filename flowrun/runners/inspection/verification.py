"""Whether the files of a checkpoint or savepoint are still those that were written."""

from __future__ import annotations

from flowrun.errors import StateError
from flowrun.state.storage.locate import SnapshotPath
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.state_path import resolve


def damaged_files(snapshot: SnapshotPath) -> tuple[str, ...]:
    """What is wrong with each file that is missing, truncated or altered. Reads every byte of all keyed state, file by file.

    Operator state and rows in flight were read and checked with the metadata.
    """
    root = resolve(snapshot.root)
    files = {
        reference.file.path: reference.file
        for operator in snapshot.metadata.operators.values()
        for subtask in operator.subtasks.values()
        for table in subtask.keyed.values()
        for reference in table.files
    }
    found = []
    for path, file in sorted(files.items()):
        try:
            with StateFileReader(root.below(path), file) as reader:
                reader.rows()
        except StateError as error:
            found.append(error.message)
    return tuple(found)


def unreadable(snapshot: SnapshotPath, cause: Exception) -> StateError:
    """The error for rows that could not be read: names the files that are damaged."""
    damaged = damaged_files(snapshot)
    return StateError("; ".join(damaged) if damaged else f"the state in '{snapshot.folder}' cannot be read: {cause}")
