"""What differs between two checkpoints or savepoints, table by table; counted by DuckDB over the files, so that big states are fine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from flowrun.api.state import KEY_GROUP_COLUMN
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.runners.inspection.tables import SUBTASK_COLUMN, StateDatabase, StateTable, quoted
from flowrun.runners.inspection.verification import damaged_files
from flowrun.state.storage.locate import SnapshotPath

_ROWS_AT_A_TIME = 4_000_000


@record
class TableDifference:
    """One table in two snapshots. All counts are of rows that operators would restore.

    Attributes:
        title: `operator.table`.
        keys: names of the key columns, by which rows are paired; empty: rows are only there or not.
        rows: in the first and in the second snapshot; None: it does not have the table.
        keys_added: keys that only the second has.
        keys_removed: keys that only the first has.
        keys_changed: keys that both have, with other rows.
        rows_added: rows (each as often as it is there) that only the second has.
        rows_removed: rows that only the first has.
        columns: how the columns differ, as text; rows are compared by those that both have.
        sample: some of the rows that differ: `__change` (`+` or `-`), then the columns.
    """

    title: str
    keys: tuple[str, ...]
    rows: tuple[int | None, int | None]
    keys_added: int = 0
    keys_removed: int = 0
    keys_changed: int = 0
    rows_added: int = 0
    rows_removed: int = 0
    columns: tuple[str, ...] = ()
    sample: pa.Table | None = None

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return None not in self.rows and not self.rows_added and not self.rows_removed and not self.columns


def diff_states(first: SnapshotPath, second: SnapshotPath, sample: int = 5) -> tuple[TableDifference, ...]:
    """The tables of two snapshots, paired by operator and name; `sample` rows that differ are kept of each.

    In which subtask a row was does not count.

    Raises:
        StateError: a file is missing, truncated or altered, or DuckDB is not installed.
    """
    with StateDatabase([first, second]) as database:
        try:
            return tuple(_differences(database, sample))
        except database.duckdb.Error as error:
            damaged = [d for snapshot in (first, second) for d in damaged_files(snapshot)]
            raise StateError("; ".join(damaged) or f"the states cannot be compared: {error}") from error


def _differences(database: StateDatabase, sample: int) -> list[TableDifference]:
    before, after = ({(t.operator_id, t.name): i for i, t in enumerate(tables)} for tables in database.tables)
    found = []
    for identity in dict.fromkeys([*before, *after]):
        i, j = before.get(identity), after.get(identity)
        if i is not None and j is not None:
            found.append(_compared(database, i, j, sample))
        elif i is not None:
            found.append(_alone(database, 0, i))
        elif j is not None:
            found.append(_alone(database, 1, j))
    return found


def _alone(database: StateDatabase, snapshot: int, position: int) -> TableDifference:
    """A table that only one snapshot has."""
    table = database.tables[snapshot][position]
    database.load(snapshot, position)
    rows = _number(database, f"SELECT count(*) FROM {database.relation(snapshot, position)}")
    if snapshot == 0:
        return TableDifference(table.title, table.keys, (rows, None), rows_removed=rows)
    return TableDifference(table.title, table.keys, (None, rows), rows_added=rows)


def _compared(database: StateDatabase, i: int, j: int, sample: int) -> TableDifference:
    before, after = database.tables[0][i], database.tables[1][j]
    database.load(0, i)
    database.load(1, j)
    one, two = database.relation(0, i), database.relation(1, j)
    common = [n for n in before.columns.names if n in after.columns.names and n != SUBTASK_COLUMN]
    columns = ", ".join(map(quoted, common))
    keys = tuple(k for k in before.keys if k in common) if before.keys == after.keys else ()
    counts = [_number(database, f"SELECT count(*) FROM {name}") for name in (one, two)]
    database.run(f"CREATE TEMP TABLE differing AS SELECT {columns}, 0::BIGINT AS __times FROM {one} LIMIT 0")
    try:
        for where in _pieces(after, common, sum(counts)):
            both = f"SELECT {columns}, -1 AS __side FROM {one}{where} UNION ALL SELECT {columns}, 1 FROM {two}{where}"
            database.run(
                f"INSERT INTO differing SELECT {columns}, sum(__side)::BIGINT AS __times FROM ({both}) "
                f"GROUP BY {columns} HAVING __times <> 0"
            )
        added = _number(database, "SELECT coalesce(sum(__times) FILTER (WHERE __times > 0), 0) FROM differing")
        removed = _number(database, "SELECT coalesce(-sum(__times) FILTER (WHERE __times < 0), 0) FROM differing")
        by_key = _keys(database, keys, one, two) if keys else (0, 0, 0)
        shown = [*keys, *(c for c in common if c not in keys)]
        rows = _sample(database, shown, sample) if added + removed else None
    finally:
        database.run("DROP TABLE differing")
    return TableDifference(
        after.title,
        keys,
        (counts[0], counts[1]),
        *by_key,
        rows_added=added,
        rows_removed=removed,
        columns=tuple(_column_changes(before, after)),
        sample=rows,
    )


def _pieces(table: StateTable, columns: Sequence[str], rows: int) -> Iterator[str]:
    """Conditions that cut keyed tables by key group, as files are: what is compared at a time fits into memory."""
    pieces = min(table.max_parallelism, 1 + rows // _ROWS_AT_A_TIME)
    if pieces == 1 or KEY_GROUP_COLUMN not in columns:
        yield ""
        return
    bounds = [table.max_parallelism * i // pieces for i in range(pieces + 1)]
    for start, stop in pairwise(bounds):
        yield f" WHERE {KEY_GROUP_COLUMN} >= {start} AND {KEY_GROUP_COLUMN} < {stop}"


def _keys(database: StateDatabase, keys: Sequence[str], one: str, two: str) -> tuple[int, int, int]:
    """(added, removed, changed): how many keys of the rows that differ are only in `two`, only in `one`, or in both."""
    columns = ", ".join(map(quoted, keys))
    same = " AND ".join(f"t.{quoted(k)} IS NOT DISTINCT FROM d.{quoted(k)}" for k in keys)
    ((added, removed, changed),) = database.run(
        f"""WITH d AS (SELECT DISTINCT {columns} FROM differing),
                 sides AS (SELECT {columns}, 1 AS __side FROM {one} t SEMI JOIN d ON {same}
                           UNION SELECT {columns}, 2 FROM {two} t SEMI JOIN d ON {same}),
                 found AS (SELECT sum(__side) AS __sides FROM sides GROUP BY {columns})
            SELECT count(*) FILTER (WHERE __sides = 2), count(*) FILTER (WHERE __sides = 1), count(*) FILTER (WHERE __sides = 3)
            FROM found"""
    )
    return int(added), int(removed), int(changed)


def _sample(database: StateDatabase, columns: Sequence[str], rows: int) -> pa.Table:
    names = ", ".join(map(quoted, columns))
    times = "unnest(range(least(abs(__times), 3)))"  # a row that is there more often is shown more than once
    differing = f"SELECT if(__times < 0, '-', '+') AS __change, {names}, {times} FROM differing"
    order = ", ".join(f"{n} NULLS FIRST" for n in map(quoted, columns))
    return database.table(
        f"SELECT __change, {names} FROM ({differing}) ORDER BY {order}, __change DESC LIMIT {int(rows)}"
    )


def _column_changes(before: StateTable, after: StateTable) -> list[str]:
    changes = [f"column '{f.name}' {f.type} was removed" for f in before.columns if f.name not in after.columns.names]
    for field in after.columns:
        if field.name not in before.columns.names:
            changes.append(f"column '{field.name}' {field.type} was added")
        elif not (old := before.columns.field(field.name)).type.equals(field.type):
            changes.append(f"column '{field.name}' was {old.type}, is {field.type} now")
    return changes


def _number(database: StateDatabase, sql: str) -> int:
    return int(database.run(sql)[0][0])
