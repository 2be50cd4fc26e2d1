"""The state of a checkpoint or savepoint as tables in DuckDB: read lazily from the files, with only those rows that would be restored.

Rows reach DuckDB through Arrow, on any file system that pyarrow knows; DuckDB itself is forbidden to open files. Footers are
checked against the metadata before a file is used, and pages against their checksums while it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from flowrun.api.state import KEY_GROUP_COLUMN
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.checkpoints import CheckpointMetadata, FileReference, KeyedTableState, OperatorMetadata
from flowrun.state.storage.folding import SEGMENT_COLUMN, key_columns, restored_schema
from flowrun.state.storage.keyed_reader import read_keyed_rows
from flowrun.state.storage.locate import SnapshotPath
from flowrun.state.storage.operator_files import SUBTASK_COLUMN
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.state_path import StatePath, resolve

_SCHEMA = "__state"
"""DuckDB schema of what is behind the tables: apart, so that SHOW TABLES shows tables only."""

_IDENTITIES = {"splits": ("split_id",), "committables": ("commit_id",)}
_PLAIN = re.compile(r"[^0-9A-Za-z]+")


@record(slots=False)
class StateTable:
    """One table of one operator.

    Attributes:
        operator_name: of the operator; with the beginning of its id behind it if an operator before has the name.
        columns: as queries see them.
        keys: columns that say which key (split, commit) a row is about; empty: rows have no identity.
        keyed: the same table of the old subtasks; empty: operator state.
        rows: of operator state.
        aliases: names under which queries find it, the longest (`operator.table`) first.
    """

    operator_id: str
    operator_name: str
    name: str
    columns: pa.Schema
    keys: tuple[str, ...]
    keyed: tuple[KeyedTableState, ...]
    rows: pa.Table | None
    max_parallelism: int
    aliases: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """`operator.table`."""
        return f"{self.operator_name}.{self.name}"


def state_tables(metadata: CheckpointMetadata) -> tuple[StateTable, ...]:
    """All tables of a snapshot with the names under which queries find them."""
    operators = list(metadata.operators.values())
    seen: set[str] = set()
    shown = []
    for operator in operators:  # DuckDB ignores case
        shown.append(
            operator.name if operator.name.lower() not in seen else f"{operator.name}#{operator.operator_id[:8]}"
        )
        seen.add(shown[-1].lower())
    tables = [t for o, name in zip(operators, shown, strict=True) for t in _tables(o, name)]
    wanted = [_aliases(t, [o.operator_id for o in tables].count(t.operator_id) == 1) for t in tables]
    taken: dict[str, int] = {}
    for aliases in wanted:
        for alias in aliases:
            taken[alias.lower()] = taken.get(alias.lower(), 0) + 1
    return tuple(
        StateTable(
            t.operator_id,
            t.operator_name,
            t.name,
            t.columns,
            t.keys,
            t.keyed,
            t.rows,
            t.max_parallelism,
            tuple(a for a in aliases if a == t.title or taken[a.lower()] == 1),
        )
        for t, aliases in zip(tables, wanted, strict=True)
    )


def _tables(saved: OperatorMetadata, shown: str) -> list[StateTable]:
    keyed: dict[str, list[KeyedTableState]] = {}
    states: dict[str, list[pa.Table]] = {}
    for subtask, state in sorted(saved.subtasks.items()):
        for name, table in state.keyed.items():
            keyed.setdefault(name, []).append(table)
        for name, operator_state in state.operator.items():
            rows = operator_state.rows
            number = pa.array([subtask] * rows.num_rows, pa.int32())
            states.setdefault(name, []).append(rows.add_column(0, SUBTASK_COLUMN, number))
    found = []
    for name, tables in keyed.items():
        columns = restored_schema(tables[0].schema)
        keys = _key_columns(tables[0])
        found.append(
            StateTable(saved.operator_id, shown, name, columns, keys, tuple(tables), None, saved.max_parallelism)
        )
    for name, parts in states.items():
        whole = pa.concat_tables(parts, promote_options="permissive")
        keys = tuple(k for k in _IDENTITIES.get(name, ()) if k in whole.schema.names)
        found.append(StateTable(saved.operator_id, shown, name, whole.schema, keys, (), whole, saved.max_parallelism))
    return found


def _key_columns(table: KeyedTableState) -> tuple[str, ...]:
    return key_columns(table.schema) if table.key is None else table.key


def _aliases(table: StateTable, only: bool) -> list[str]:
    """`operator.table`, `operator_table` in plain characters, and the operator's name alone if it has no other table."""
    names = [table.title, _plain(table.title)]
    if only:
        names += [table.operator_name, _plain(table.operator_name)]
    return list(dict.fromkeys(names))


def _plain(name: str) -> str:
    """A name that needs no quotes in SQL.

    >>> _plain("Source: orders.splits"), _plain("2nd step")
    ('source_orders_splits', '_2nd_step')
    """
    plain = _PLAIN.sub("_", name).strip("_").lower()
    return f"_{plain}" if plain[:1].isdigit() else plain


class StateDatabase:
    """A DuckDB connection in memory that sees the tables of one or more snapshots, and nothing else. Not thread-safe.

    Tables are there from the beginning, but without rows until `load`: so that a query is checked before anything is read.

    Args:
        snapshots: relations of the n-th snapshot's tables are called `relation(n, i)`.

    Raises:
        StateError: DuckDB is not installed.
    """

    def __init__(self, snapshots: Sequence[SnapshotPath]) -> None:
        self.duckdb = import_duckdb()
        self.connection: Any = self.duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
        self._snapshots = snapshots
        self.tables = [state_tables(s.metadata) for s in snapshots]
        self._loaded: set[tuple[int, int]] = set()
        self._held: list[object] = []
        self.run("SET enable_external_access = false")
        self.run("SET TimeZone = 'UTC'")
        self.run(f"CREATE SCHEMA {_SCHEMA}")
        for n, tables in enumerate(self.tables):
            for i, table in enumerate(tables):
                relation = self.relation(n, i)
                self._show(relation, table.columns.empty_table(), table)

    def __enter__(self) -> StateDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def run(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement to its end; gives its rows."""
        rows: list[tuple[Any, ...]] = self.connection.execute(sql, list(parameters)).fetchall()
        return rows

    def table(self, sql: str) -> pa.Table:
        """The rows of a query in Arrow."""
        return self.connection.sql(sql).to_arrow_table()

    @staticmethod
    def relation(snapshot: int, table: int) -> str:
        """Name of the view of a table, by the positions of its snapshot and of itself in `tables`."""
        return f"{_SCHEMA}.s{snapshot}_{table}"

    def load(self, snapshot: int, table: int) -> None:
        """Put the rows behind the view of a table.

        Raises:
            StateError: a file of it is missing, truncated or altered.
        """
        if (snapshot, table) in self._loaded:
            return
        self._loaded.add((snapshot, table))
        wanted = self.tables[snapshot][table]
        relation = self.relation(snapshot, table)
        if wanted.rows is not None:
            self._show(relation, wanted.rows, wanted)
            return
        root = resolve(self._snapshots[snapshot].root)
        if any(state.key is not None for state in wanted.keyed):
            # the newest row of a key counts: found as restoring finds it
            self._show(relation, read_keyed_rows(wanted.keyed, None, root), wanted)
            return
        selects = []
        for i, reference in enumerate(r for state in wanted.keyed for r in state.files):
            part = f"{relation}_{i}"
            rows = _dataset(reference, root)
            self._name(part, rows)
            where = "" if reference.live is None else f" WHERE {SEGMENT_COLUMN} IN ({_numbers(reference.live)})"
            selects.append(f"SELECT {self._columns(relation, wanted.columns, rows.schema)} FROM {part}{where}")
        if selects:
            self.run(f"CREATE OR REPLACE VIEW {relation} AS {' UNION ALL '.join(selects)}")

    def _columns(self, relation: str, columns: pa.Schema, found: pa.Schema) -> str:
        """The columns of a table, cast where Parquet gave them another type than they were written with."""
        if all(found.field(f.name).type.equals(f.type) for f in columns):
            return ", ".join(quoted(name) for name in columns.names)
        kinds = dict(self.run(f"SELECT column_name, column_type FROM (DESCRIBE {relation})"))
        return ", ".join(f"CAST({quoted(name)} AS {kinds[name]}) AS {quoted(name)}" for name in columns.names)

    def _show(self, relation: str, rows: pa.Table, table: StateTable) -> None:
        self._name(f"{relation}_rows_{len(self._held)}", rows)
        columns = ", ".join(quoted(name) for name in table.columns.names)
        self.run(f"CREATE OR REPLACE VIEW {relation} AS SELECT {columns} FROM {relation}_rows_{len(self._held) - 1}")

    def _name(self, name: str, rows: pa.Table | ds.Dataset) -> None:
        """Make Arrow data a relation in `_SCHEMA`; `register` would show it to users."""
        self._held.append(rows)
        self.run(f"SET schema = '{_SCHEMA}'")
        self.connection.from_arrow(rows).create_view(name.removeprefix(f"{_SCHEMA}."))
        self.run("SET schema = 'main'")


def import_duckdb() -> ModuleType:
    """DuckDB, imported when it is needed.

    Raises:
        StateError: it is not installed.
    """
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise StateError("state is queried with DuckDB, which is not installed", hint="pip install duckdb") from error
    module: ModuleType = duckdb
    return module


def quoted(name: str) -> str:
    """A name as an SQL identifier.

    >>> print(quoted('Source: "a" b'))
    "Source: ""a"" b"
    """
    return '"' + name.replace('"', '""') + '"'


def _numbers(live: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in live) or "NULL"


def _dataset(reference: FileReference, root: StatePath) -> ds.Dataset:
    location = root.below(reference.file.path)
    with StateFileReader(location, reference.file) as file:  # its size and footer are those that were written
        file.check_signed()
    checked = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    )
    return ds.dataset([location.path], format=checked, filesystem=location.filesystem)


__all__ = [
    "KEY_GROUP_COLUMN",
    "SUBTASK_COLUMN",
    "StateDatabase",
    "StateTable",
    "import_duckdb",
    "quoted",
    "state_tables",
]
