"""What the operators of a subtask restore from: keyed tables read from state files, cut to the subtask's key groups and migrated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from flowrun.api.operator import DescribesState, MigratesState
from flowrun.api.state import KeyGroupRange, OperatorSnapshot, migrations_of
from flowrun.core.provided import provides
from flowrun.errors import StateError
from flowrun.graph.job_graph import ChainedOperator
from flowrun.runtime.messages import RestoredChannel, RestoredTask
from flowrun.state.checkpoints import KeyedTableState, StoredRows
from flowrun.state.schema_migration import differences, migrate
from flowrun.state.storage.contract import SnapshotStorage


def read_operator(
    restored: RestoredTask, operator: ChainedOperator, groups: KeyGroupRange, storage: SnapshotStorage | None
) -> OperatorSnapshot | None:
    """What an operator is initialised with; None if the checkpoint does not know it. Blocks on I/O.

    Raises:
        StateError: files are missing or damaged, or their columns do not fit the operator.
    """
    state = restored.operators.get(operator.operator_id)
    if state is None:
        return None
    if state.keyed and storage is None:
        raise StateError(f"'{operator.name}' has state to restore, but the job was given no place to read it from")
    expected = operator.factory.state_schemas() if provides(operator.factory, DescribesState) else {}
    keyed = {}
    for name, tables in state.keyed.items():
        assert storage is not None
        try:
            parts = _parts(tables, groups, restored.root, storage)
            keyed[name] = _joined(parts, expected.get(name), partial(_migration, operator, name))
        except StateError as error:
            raise StateError(
                f"'{operator.name}', state '{name}' of checkpoint {restored.checkpoint_id}: {error.message}",
                hint=error.hint,
            ) from error
    return OperatorSnapshot(keyed, state.operator)


def _parts(
    tables: Sequence[KeyedTableState], groups: KeyGroupRange, root: str, storage: SnapshotStorage
) -> list[pa.Table]:
    """One table of all old subtasks. Those of different columns (written before and after a migration) are read apart."""
    alike: list[list[KeyedTableState]] = []
    for table in tables:
        same = next((a for a in alike if a[0].schema.equals(table.schema) and a[0].key == table.key), None)
        if same is None:
            alike.append([table])
        else:
            same.append(table)
    return [storage.read_keyed(a, groups, root) for a in alike]


def _joined(
    parts: list[pa.Table], expected: pa.Schema | None, migration: Callable[[], Callable[[pa.Table], pa.Table] | None]
) -> pa.Table:
    """The parts as one table of the columns that are expected.

    `migration` gives what makes rows of rows with other values, if there is something.
    """
    if expected is not None:
        if migrations_of(expected):
            parts = [_with_values(part, expected, migration) for part in parts]
        parts = [migrate(part, expected) for part in parts]
    elif any(not part.schema.equals(parts[0].schema) for part in parts[1:]):
        raise StateError(
            "old subtasks wrote it with different columns: " + "; ".join(str(part.schema.names) for part in parts)
        )
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def _with_values(
    part: pa.Table, expected: pa.Schema, migration: Callable[[], Callable[[pa.Table], pa.Table] | None]
) -> pa.Table:
    made = migration() if differences(part.schema, expected) else None
    return part if made is None else made(part)


def _migration(operator: ChainedOperator, name: str) -> Callable[[pa.Table], pa.Table] | None:
    return operator.factory.state_migrations().get(name) if provides(operator.factory, MigratesState) else None


def read_channels(
    channels: Sequence[RestoredChannel], root: str, storage: SnapshotStorage | None
) -> list[RestoredChannel]:
    """Channels with the rows that were in flight on them. Blocks on I/O if these are in files.

    Raises:
        StateError: files are missing or damaged.
    """
    if not any(isinstance(e, StoredRows) for c in channels for e in c.elements):
        return list(channels)
    if storage is None:
        raise StateError("rows were in flight, but the job was given no place to read them from")
    elements = storage.read_in_flight([c.elements for c in channels], root)
    return [replace(channel, elements=found) for channel, found in zip(channels, elements, strict=True)]
