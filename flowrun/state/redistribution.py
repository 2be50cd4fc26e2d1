"""What each subtask gets back from the snapshots of the old subtasks, at the same or another parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import KEY_GROUP_COLUMN, KeyGroupRange, OperatorSnapshot, OperatorState, Redistribution
from flowrun.errors import StateError
from flowrun.state.key_groups import MAX_MAX_PARALLELISM, key_group_range
from flowrun.state.storage.folding import fold_segments

_ALL_GROUPS = KeyGroupRange(0, MAX_MAX_PARALLELISM)


def redistribute(
    snapshots: Sequence[OperatorSnapshot], subtask: int, parallelism: int, max_parallelism: int
) -> OperatorSnapshot:
    """The snapshot that one new subtask restores from those of all old subtasks (in their order) of one operator.

    Tables in segments count as the keyed tables that are restored of them. Keyed tables are cut to the subtask's key groups. Operator
    state follows its mode: SPLIT keeps each old subtask's rows where they were if the parallelism is unchanged, and deals rows
    round robin otherwise; UNION gives all rows to all. Of BROADCAST state, which is alike in all subtasks but for what was in flight
    to them, each new subtask gets that of the old one in its place, or of the one at its number modulo that of the old ones.

    Raises:
        StateError: one state name has different columns or modes in different snapshots.
    """
    groups = key_group_range(subtask, parallelism, max_parallelism)
    snapshots = [materialised(s) for s in snapshots]
    keyed = {
        name: _cut(_concat(name, [s.keyed[name] for s in snapshots if name in s.keyed]), groups)
        for name in dict.fromkeys(n for s in snapshots for n in s.keyed)
    }
    operator = redistribute_operator_state([s.operator for s in snapshots], parallelism)[subtask]
    return OperatorSnapshot(keyed, operator)


def redistribute_operator_state(
    states: Sequence[Mapping[str, OperatorState]], parallelism: int
) -> list[dict[str, OperatorState]]:
    """The operator state of every new subtask, in their order, from that of all old ones; see `redistribute`.

    Raises:
        StateError: as `redistribute`.
    """
    names = dict.fromkeys(name for state in states for name in state)
    dealt = {name: _deal(name, [state.get(name) for state in states], parallelism) for name in names}
    return [{name: each[subtask] for name, each in dealt.items()} for subtask in range(parallelism)]


def materialised(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """The same with all that is remembered in `keyed`: segments are materialised, logs have their newest rows only."""
    if not snapshot.segmented:
        return snapshot
    folded = {name: fold_segments(table, _ALL_GROUPS) for name, table in snapshot.segmented.items()}
    return OperatorSnapshot({**snapshot.keyed, **folded}, snapshot.operator)


def _concat(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    for table in tables[1:]:
        if table.schema != tables[0].schema:
            raise StateError(
                f"state '{name}' has different columns in different subtasks: {tables[0].schema.names} with types "
                f"{[str(t) for t in tables[0].schema.types]}, and {table.schema.names} with types "
                f"{[str(t) for t in table.schema.types]}"
            )
    return pa.concat_tables(tables)


def _cut(table: pa.Table, groups: KeyGroupRange) -> pa.Table:
    column = table[KEY_GROUP_COLUMN]
    return table.filter(pc.and_(pc.greater_equal(column, groups.start), pc.less(column, groups.stop)))


def _deal(name: str, states: Sequence[OperatorState | None], parallelism: int) -> list[OperatorState]:
    """One piece of operator state for every new subtask, in their order, from those of all old subtasks; at least one has it."""
    present = [s for s in states if s is not None]
    modes = {s.redistribution for s in present}
    if len(modes) > 1:
        raise StateError(f"state '{name}' is {' and '.join(sorted(m.value for m in modes))} in different subtasks")
    mode = modes.pop()
    if mode is Redistribution.BROADCAST:
        return [states[i % len(states)] or present[0] for i in range(parallelism)]
    if mode is Redistribution.SPLIT and len(states) == parallelism:
        nothing = OperatorState(present[0].rows.slice(0, 0), mode)
        return [own or nothing for own in states]
    rows = _concat(name, [s.rows for s in present])
    if mode is Redistribution.UNION:
        return [OperatorState(rows, mode)] * parallelism
    places = [pa.array(range(i, rows.num_rows, parallelism), pa.int64()) for i in range(parallelism)]
    return [OperatorState(rows.take(mine), mode) for mine in places]
