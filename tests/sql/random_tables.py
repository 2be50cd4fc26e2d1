"""Random tables for random queries: rows with NULLs, duplicates and disorder, as files for flowrun and as tables for DuckDB."""

from __future__ import annotations

import datetime as dt
import json
import random
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

START = dt.datetime(2024, 3, 1, 9)
DISORDER_MS = 4_000
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `kind` is what the query generator makes of it: int, text, number (DECIMAL) or time."""

    name: str
    type: str
    kind: str


@dataclass(frozen=True, slots=True)
class RandomTable:
    """A table: `rows` are its content at the end; `lines` the file that flowrun reads. `changes`: the file is a changelog.

    `group_rows`: the file is Parquet instead, with so many rows a row group, whose statistics say what need not be read.
    `keyed`: the changelog has a primary key, `id`, as its rows are "upserts", or "duplicates" are among them.
    """

    name: str
    columns: tuple[Column, ...]
    rows: list[Row]
    lines: list[str]
    changes: bool = False
    group_rows: int | None = None
    keyed: str = ""

    @property
    def emitted(self) -> int:
        """How many rows the file is read as: an update is two."""
        pairs = self.changes and self.keyed != "upserts"
        return sum(2 if pairs and '"op": "u"' in line else 1 for line in self.lines)

    def ddl(self, folder: Path) -> str:
        """CREATE TABLE over the written file."""
        # of upserts even what must not be NULL is so where they delete
        needed = " NOT NULL" if self.keyed == "upserts" else ""
        columns = [f"{c.name} {c.type}" + (needed if c.name == "w" else "") for c in self.columns]
        if any(c.kind == "time" for c in self.columns):
            columns.append("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
        form = "debezium-json" if self.changes else "json" if self.group_rows is None else "parquet"
        if self.keyed:
            columns.append("PRIMARY KEY (id) NOT ENFORCED")
        more = ", 'debezium-json.changelog-mode'='upsert'" if self.keyed == "upserts" else ""
        return (
            f"CREATE TABLE {self.name} ({', '.join(columns)}) WITH "
            f"('connector'='filesystem', 'path'='{self._file(folder)}', 'format'='{form}'{more});"
        )

    def write(self, folder: Path) -> None:
        """The file."""
        if self.group_rows is None:
            self._file(folder).write_text("".join(line + "\n" for line in self.lines))
            return
        by_id = {row["id"]: row for row in self.rows}
        arrived = [by_id[json.loads(line)["id"]] for line in self.lines]
        pq.write_table(self._arrow(arrived), self._file(folder), row_group_size=self.group_rows)

    def load(self, database: duckdb.DuckDBPyConnection) -> None:
        """The table, in DuckDB."""
        database.register(f"{self.name}_rows", self._arrow(self.rows))
        database.execute(f"CREATE TABLE {self.name} AS SELECT * FROM {self.name}_rows")

    def _file(self, folder: Path) -> Path:
        return folder / f"{self.name}.{'json' if self.group_rows is None else 'parquet'}"

    def _arrow(self, rows: list[Row]) -> pa.Table:
        kinds = {
            "BIGINT": pa.int64(), "INT": pa.int32(), "STRING": pa.string(), "DECIMAL(10,2)": pa.decimal128(10, 2),
            "TIMESTAMP(3)": pa.timestamp("ms"),
        }  # fmt: skip
        return pa.table({c.name: pa.array([r[c.name] for r in rows], kinds[c.type]) for c in self.columns})


A_COLUMNS = (
    Column("id", "BIGINT", "int"),
    Column("k", "STRING", "text"),
    Column("g", "INT", "int"),
    Column("v", "BIGINT", "int"),
    Column("d", "DECIMAL(10,2)", "number"),
    Column("ts", "TIMESTAMP(3)", "time"),
)
B_COLUMNS = (
    Column("id", "BIGINT", "int"),
    Column("k", "STRING", "text"),
    Column("g", "INT", "int"),
    Column("w", "BIGINT", "int"),
    Column("ts", "TIMESTAMP(3)", "time"),
)
C_COLUMNS = (Column("id", "BIGINT", "int"), Column("k", "STRING", "text"), Column("w", "BIGINT", "int"))


def random_tables(chance: random.Random, least: int = 0) -> tuple[RandomTable, RandomTable, RandomTable]:
    """Tables `a` and `b` of events and `c`, a changelog. Event times of one table are distinct, and out of order by up to 4 s.

    Each has at least `least` rows, or changes.
    """
    rows = chance.choice([0, 3, 40, 120, 250])
    return (
        _events("a", A_COLUMNS, max(least, rows), chance),
        _events("b", B_COLUMNS, max(least, chance.choice([0, 5, rows, 100])), chance),
        _changelog(max(least, chance.choice([0, 10, 80])), chance),
    )


def stored_at_random(tables: tuple[RandomTable, ...], chance: random.Random) -> tuple[RandomTable, ...]:
    """The same tables, those of events perhaps as Parquet in small row groups."""
    return tuple(replace(t, group_rows=chance.choice([None, 3, 16])) if not t.changes and t.rows else t for t in tables)


def keyed(table: RandomTable, form: str, chance: random.Random) -> RandomTable:
    """The same changelog as "upserts" (no rows before updates, deletes by key), or with "duplicates"; changes are sent again in both, as
    whoever goes back to an older position and on does, and some keys are deleted that never were.
    """
    lines: list[str] = []
    for line in table.lines:
        change = json.loads(line)
        if form == "upserts":
            before = {"id": change["before"]["id"]} if change["op"] == "d" else None
            line = json.dumps({**change, "op": change["op"].replace("c", chance.choice("cru")), "before": before})  # noqa: PLW2901
        lines.append(line)
        if chance.random() < 0.15:
            lines += lines[-chance.randrange(1, 12) :]
        if chance.random() < 0.05:
            lines.append(json.dumps({"before": {"id": -1, "k": None, "w": None}, "after": None, "op": "d"}))
    return replace(table, lines=lines, keyed=form)


def _events(name: str, columns: tuple[Column, ...], count: int, chance: random.Random) -> RandomTable:
    keys = [f"k{i}" for i in range(chance.choice([2, 5, 30]))] + ["ü€"]
    rows = []
    for i in range(count):
        row = {c.name: _value(c, i, keys, chance) for c in columns}
        # half of the times are whole half seconds: the bounds of windows and intervals, and times that tables share
        row["ts"] = START + dt.timedelta(milliseconds=i * 500 + chance.choice([0, chance.randrange(400)]))
        rows.append(row)
    arrival = sorted(rows, key=lambda r: r["ts"] + dt.timedelta(milliseconds=chance.randrange(DISORDER_MS)))
    return RandomTable(name, columns, rows, [_json(r) for r in arrival])


def _value(column: Column, i: int, keys: list[str], chance: random.Random) -> Any:
    if column.name == "id":
        return i
    if chance.random() < 0.1:
        return None
    match column.kind:
        case "text":
            return chance.choice(keys)
        case "number":
            return Decimal(chance.randrange(-500, 5000)) / 100
        case _:
            return chance.randrange(4 if column.name == "g" else 50)


def _changelog(steps: int, chance: random.Random) -> RandomTable:
    """Inserts, updates and deletes of rows known by `id`."""
    current: dict[int, Row] = {}
    lines = []
    for step in range(steps):
        known = list(current)
        act = chance.random()
        if act < 0.5 or not known:
            row = {"id": step, "k": chance.choice(["k0", "k1", "k2", None]), "w": chance.randrange(20)}
            lines.append(json.dumps({"before": None, "after": row, "op": "c"}))
            current[step] = row
            continue
        key = chance.choice(known)
        before = current.pop(key)
        if act < 0.8:
            current[key] = {**before, "w": chance.randrange(20), "k": chance.choice(["k0", "k1", before["k"]])}
            lines.append(json.dumps({"before": before, "after": current[key], "op": "u"}))
        else:
            lines.append(json.dumps({"before": before, "after": None, "op": "d"}))
    return RandomTable("c", C_COLUMNS, list(current.values()), lines, changes=True)


def _json(row: Row) -> str:
    shown = {
        k: float(v) if isinstance(v, Decimal) else v.isoformat(" ", "milliseconds") if isinstance(v, dt.datetime) else v
        for k, v in row.items()
    }
    return json.dumps(shown, ensure_ascii=False)
