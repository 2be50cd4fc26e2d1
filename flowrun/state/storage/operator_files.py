"""Operator state in files: one Parquet file a piece of state, with the rows of all subtasks and a column that says whose they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorState, Redistribution
from flowrun.core.record import record
from flowrun.state.checkpoints import FORMAT_VERSION, OperatorMetadata, StateFile
from flowrun.state.storage.names import state_file_name
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.parquet_types import as_schema
from flowrun.state.storage.parquet_write import write_rows
from flowrun.state.storage.state_path import StatePath

SUBTASK_COLUMN = "__subtask"
"""Name of the int32 column, first in files of operator state: the old subtask that a row belongs to."""


@record
class OperatorStateFile:
    """A piece of operator state.

    Attributes:
        state: its name.
        redistribution: its mode.
        schema: its columns.
        rows: subtask → how many rows, in the order of the file.
        file: None if there are no rows.
    """

    state: str
    redistribution: Redistribution
    schema: pa.Schema
    rows: Mapping[int, int]
    file: StateFile | None


def write_operator_state(folder: StatePath, prefix: str, operator: OperatorMetadata) -> list[OperatorStateFile]:
    """Write the operator state of all subtasks of an operator; `prefix` comes before file names in paths.

    Raises:
        StateError: it cannot be written.
    """
    pieces: dict[tuple[str, Redistribution, bytes], dict[int, OperatorState]] = {}
    for subtask, state in sorted(operator.subtasks.items()):
        for name, piece in state.operator.items():
            columns = piece.rows.schema.serialize().to_pybytes()
            pieces.setdefault((name, piece.redistribution, columns), {})[subtask] = piece
    return [_write(folder, prefix, operator, name, mode, states) for (name, mode, _), states in pieces.items()]


def _write(
    folder: StatePath,
    prefix: str,
    operator: OperatorMetadata,
    name: str,
    mode: Redistribution,
    states: Mapping[int, OperatorState],
) -> OperatorStateFile:
    schema = next(iter(states.values())).rows.schema
    counts = {subtask: state.rows.num_rows for subtask, state in states.items()}
    file = None
    if sum(counts.values()):
        rows = pa.concat_tables([s.rows for s in states.values()])
        owner = pa.array(np.repeat(np.array(list(counts), np.int32), list(counts.values())))
        rows = rows.add_column(0, pa.field(SUBTASK_COLUMN, pa.int32(), nullable=False), owner)
        file_name = state_file_name(operator.name, operator.operator_id, name)
        notes = {
            "flowrun.format": str(FORMAT_VERSION),
            "flowrun.operator": operator.name,
            "flowrun.operator_id": operator.operator_id,
            "flowrun.operator_state": name,
        }
        file = write_rows(folder / file_name, prefix + file_name, rows, notes)
    return OperatorStateFile(name, mode, schema, counts, file)


def read_operator_state(root: StatePath, piece: OperatorStateFile) -> dict[int, OperatorState]:
    """Subtask → its rows.

    Raises:
        DamagedFileError: the file is missing, truncated or altered.
    """
    rows = piece.schema.empty_table()
    if piece.file is not None:
        with StateFileReader(root.below(piece.file.path), piece.file) as file:
            rows = as_schema(file.rows().remove_column(0), piece.schema)
    states, start = {}, 0
    for subtask, count in piece.rows.items():
        states[subtask] = OperatorState(rows.slice(start, count), piece.redistribution)
        start += count
    return states
