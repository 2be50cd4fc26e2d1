"""Random data and random pipelines, each with the DuckDB script that computes the same rows.

Files are in the order of time and rows are at most the watermark's delay out of order, so nothing is late and DuckDB, which knows no
watermarks, defines the result. Every table of the script carries two columns more than the pipeline's: `__time`, the event time in
milliseconds, and `__place`, the place in the source, by which aggregates that depend on the order of arrival are ordered. They are only
generated where that order is defined: behind one source subtask, up to the first window.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from tests.end_to_end.random_expressions import CASTS, DATE, DECIMAL, DOUBLE, INT, STRING, TIMESTAMP, WORDS, Expressions
from tests.end_to_end.random_windows import WindowStep

SCHEMA = {
    "id": ("BIGINT", INT), "k": ("STRING", STRING), "a": ("INT", INT), "b": ("BIGINT", INT), "x": ("DOUBLE", DOUBLE),
    "m": ("DECIMAL(10, 2)", DECIMAL), "s": ("STRING", STRING), "f": ("BOOLEAN", "BOOLEAN"), "d": ("DATE", DATE),
    "t": ("TIMESTAMP(3)", TIMESTAMP), "ts": ("TIMESTAMP(3)", TIMESTAMP),
}  # fmt: skip
"""The columns of all sources: their type and their kind."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """What a step can read, and its name in the DuckDB script.

    Attributes:
        ordered: `__place` is the order in which rows arrive.
        timed: rows have a finite event time.
    """

    name: str
    columns: Mapping[str, str]
    ordered: bool
    timed: bool = True


@dataclass
class Case:
    """A pipeline as the tree of its YAML, its data and its DuckDB script.

    Attributes:
        rows: by source, by file.
        expected: columns, by the name of the table that is written.
        doubts: queries that find rows whose fate depends on when watermarks arrive: such a case says nothing.
    """

    seed: int
    document: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, list[list[Row]]] = field(default_factory=dict)
    script: list[str] = field(default_factory=list)
    expected: dict[str, Sequence[str]] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


def make_case(seed: int) -> Case:
    """The pipeline of a seed."""
    return _CaseMaker(seed).make()


def make_rows(rng: random.Random, count: int, first_id: int, spread_ms: int, delay_ms: int) -> list[Row]:
    """Rows out of order by at most `delay_ms`, with ties, duplicates and NULLs."""
    start = rng.choice((1_709_287_200_000, 1_709_287_200_000, -90_000, 951_782_390_000))
    top = start
    made: list[Row] = []
    for number in range(count):
        top += rng.choice((0, rng.randrange(spread_ms + 1), rng.randrange(spread_ms // 10 + 1)))
        time = top - rng.choice((0, delay_ms, rng.randrange(delay_ms + 1)))
        row = {
            "id": first_id + number,
            "k": rng.choice(("a", "b", "Ж", "日本", None)),
            "a": rng.choice((None, 0, 1, 2, rng.randrange(-50, 50))),
            "b": rng.choice((None, 0, rng.randrange(-9, 9), rng.randrange(-(10**6), 10**6))),
            "x": rng.choice((None, 0.0, rng.randrange(-400, 400) / 4)),
            "m": rng.choice((None, Decimal("0.00"), Decimal(rng.randrange(-99_999, 99_999)).scaleb(-2))),
            "s": rng.choice((None, *WORDS)),
            "f": rng.choice((None, True, False)),
            "d": rng.choice((None, dt.date(1969, 12, 31), dt.date(2024, 2, 29) + dt.timedelta(rng.randrange(-99, 99)))),
            "t": rng.choice((None, time + rng.randrange(-86_400_000, 86_400_000))),
            "ts": time,
        }
        if made and rng.random() < 0.05:
            row = {**made[-1], "ts": time, "id": row["id"]}
        made.append(row)
    return made


def moment(millis: int | None) -> dt.datetime | None:
    """Milliseconds since the epoch as a local time."""
    return None if millis is None else dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=millis)


def json_line(row: Row, rng: random.Random) -> str:
    """A row in one of the ways that the JSON format reads."""
    fields: dict[str, Any] = {}
    for name, value in row.items():
        if value is None and rng.random() < 0.5:
            continue
        if isinstance(value, Decimal):
            fields[name] = f"\0{value}\0"
        elif name in ("t", "ts") and value is not None:
            text = str(moment(value).isoformat("T" if rng.random() < 0.3 else " ", "milliseconds"))  # type: ignore[union-attr]
            fields[name] = text.removesuffix(".000") if rng.random() < 0.5 else text
        else:
            fields[name] = str(value) if isinstance(value, dt.date) else value
    if rng.random() < 0.1:
        fields["unknown"] = {"nested": [1, None]}
    text = json.dumps(fields, ensure_ascii=rng.random() < 0.5)
    return text.replace('"\\u0000', "").replace('\\u0000"', "")


class _CaseMaker:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._case = Case(seed)
        self._tables: list[Table] = []
        self._read: set[str] = set()
        self._steps: dict[str, dict[str, Any]] = {}
        self._names = 0

    def make(self) -> Case:
        rng = self._rng
        settings = {
            "parallelism": rng.randint(1, 3),
            "batch_rows": rng.choice((1, 2, 7, 64, 1024, 65_536)),
            "local_aggregation": rng.random() < 0.5,
            "chaining": rng.random() < 0.6,
            "object_reuse": rng.random() < 0.5,
            "buffer_timeout": rng.choice(("1ms", "100ms")),
            "max_parallelism": rng.choice((3, 4, 128)),
        }
        self._parallelism = settings["parallelism"]
        sources = {f"source{i}": self._source(f"source{i}") for i in range(rng.choice((1, 1, 2, 3)))}
        makers: tuple[Callable[[], None], ...] = (self._calc, self._calc, self._union, self._split)
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.45:
                self._window()
            else:
                rng.choice(makers)()
        sinks = {}
        for table in [t for t in self._tables if t.name not in self._read] or self._tables[-1:]:
            self._case.expected[table.name] = tuple(table.columns)
            sinks[f"out_{table.name}"] = {"from": table.name, **self._subtasks()}
        items = list(self._steps.items())
        rng.shuffle(items)
        self._case.document = {"name": f"seed-{self._case.seed}", "settings": settings, "sources": sources}
        self._case.document |= {"steps": dict(items), "sinks": sinks}
        return self._case

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _subtasks(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if self._rng.random() < 0.25:
            chosen["parallelism"] = self._rng.randint(1, 3)
        if self._rng.random() < 0.1:
            chosen["chaining"] = False
        return chosen

    def _is_single(self, node: Mapping[str, Any]) -> bool:
        return bool(node.get("parallelism", self._parallelism) == 1)

    def _source(self, name: str) -> dict[str, Any]:
        rng = self._rng
        delay = rng.choice((0, 1, 500, 5_000, 60_000))
        rows = make_rows(
            rng, rng.choice((0, 1, 5, 30, 80, 150)), 1000 * len(self._tables), rng.choice((10, 3_000, 60_000)), delay
        )
        cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(rng.choice((0, 0, 1, 4))))
        self._case.rows[name] = [rows[i:j] for i, j in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        watermark = {"type": rng.choice(("bounded", "bounded", "none")), "delay": f"{delay}ms"}
        watermark |= {"column": "ts"} if rng.random() < 0.7 else {"time": "ts + INTERVAL '3' SECOND"}
        if watermark["type"] == "none":
            del watermark["delay"]
        columns = {n: kind for n, (_, kind) in SCHEMA.items()}
        source: dict[str, Any] = {"schema": {n: type for n, (type, _) in SCHEMA.items()}, "watermark": watermark}
        extra = ""
        if rng.random() < 0.4:
            kind = rng.choice((INT, STRING, DECIMAL))
            made = Expressions(rng, columns).make(kind)
            source["computed"] = {"extra": made.ours}
            columns["extra"] = kind
            extra = f", {made.duck} AS extra"
        source |= self._subtasks()
        shift = 0 if "column" in watermark else 3000
        query = f"SELECT *{extra}, epoch_ms(ts) + {shift} AS __time, id AS __place FROM {name}_rows"
        self._add(Table(name, columns, ordered=self._is_single(source)), query)
        return source

    def _add(self, table: Table, query: str) -> None:
        self._tables.append(table)
        self._case.script.append(f"CREATE TEMP TABLE {table.name} AS {query}")

    def _pick(self, timed: bool = False) -> Table:
        """A table to read, preferably a late one that nothing reads."""
        choices = [t for t in self._tables if t.timed or not timed]
        fresh = [t for t in choices if t.name not in self._read]
        table = self._rng.choice(fresh if fresh and self._rng.random() < 0.7 else choices)
        self._read.add(table.name)
        return table

    def _expressions(self, table: Table) -> Expressions:
        return Expressions(self._rng, table.columns)

    def _calc(self) -> None:
        """A filter, a projection, or both."""
        rng, table = self._rng, self._pick()
        step: dict[str, Any] = {"from": table.name, **self._subtasks()}
        query = f"SELECT * FROM {table.name}"
        if rng.random() < 0.6:
            condition = self._expressions(table).make("BOOLEAN", rng.randint(1, 3))
            step["filter"] = condition.ours
            query += f" WHERE {condition.duck}"
        columns = table.columns
        if "filter" not in step or rng.random() < 0.6:
            columns, ours, duck = self._projections(table)
            step["select"] = ours
            query = f"SELECT {', '.join([*duck, '__time', '__place'])} FROM ({query})"
        name = self._name("calc")
        self._steps[name] = step
        self._add(replace(table, name=name, columns=columns, ordered=table.ordered and self._is_single(step)), query)

    def _projections(self, table: Table) -> tuple[dict[str, str], list[str], list[str]]:
        rng = self._rng
        kept = dict(table.columns) if rng.random() < 0.3 else {}
        ours, duck = (["*"], list(kept)) if kept else ([], [])
        for name in table.columns:
            if not kept and rng.random() < 0.4:
                ours.append(name)
                duck.append(name)
        columns = kept or {name: table.columns[name] for name in ours}
        for _ in range(rng.randint(0 if columns else 1, 4)):
            kind = rng.choice(tuple(CASTS))
            made, name = self._expressions(table).make(kind, rng.randint(1, 3)), self._name("c")
            ours.append(f"{made.ours} AS {name}")
            duck.append(f"{made.duck} AS {name}")
            columns = {**columns, name: kind}
        return columns, ours, duck

    def _union(self) -> None:
        """Projections to common columns, and their union."""
        rng = self._rng
        members = [self._pick() for _ in range(rng.randint(2, 3))]
        kinds = [kind for kind in CASTS if rng.random() < 0.6] or [INT]
        names = {self._name("u"): kind for kind in kinds}
        selected = []
        for member in members:
            name = self._name("member")
            texts = [(self._expressions(member).make(kind, 1), column, CASTS[kind]) for column, kind in names.items()]
            ours = [f"CAST({t.ours} AS {types[0]}) AS {column}" for t, column, types in texts]
            duck = [f"CAST({t.duck} AS {types[1]}) AS {column}" for t, column, types in texts]
            self._steps[name] = {"from": member.name, "select": ours, **self._subtasks()}
            self._add(
                Table(name, names, ordered=False, timed=member.timed),
                f"SELECT {', '.join([*duck, '__time', '__place'])} FROM {member.name}",
            )
            self._read.add(name)
            selected.append(name)
        name = self._name("union")
        self._steps[name] = {"union": selected}
        if rng.random() < 0.3:
            made = Expressions(rng, names).make("BOOLEAN")
            self._steps[name]["filter"] = made.ours
            condition = f" WHERE {made.duck}"
        else:
            condition = ""
        together = " UNION ALL ".join(f"SELECT * FROM {member}" for member in selected)
        timed = all(m.timed for m in members)
        self._add(Table(name, names, ordered=False, timed=timed), f"SELECT * FROM ({together}){condition}")

    def _split(self) -> None:
        """Branches by predicate; the rest is the step's output."""
        rng, table = self._rng, self._pick()
        name = self._name("split")
        branches = {self._name("branch"): self._expressions(table).make("BOOLEAN") for _ in range(rng.randint(1, 3))}
        step = {"from": table.name, "split": {n: c.ours for n, c in branches.items()}, **self._subtasks()}
        self._steps[name] = step
        made = replace(table, ordered=table.ordered and self._is_single(step))
        for branch, condition in branches.items():
            self._add(replace(made, name=branch), f"SELECT * FROM {table.name} WHERE {condition.duck}")
        none = " AND ".join(f"({c.duck}) IS NOT TRUE" for c in branches.values())
        self._add(replace(made, name=name), f"SELECT * FROM {table.name} WHERE {none}")

    def _window(self) -> None:
        """Keys, a window and aggregates, perhaps behind a filter and a projection and before `having`."""
        rng = self._rng
        table = self._pick(timed=True)
        subtasks = self._subtasks()
        # what is computed before the shuffle runs in as many subtasks as the window
        made = WindowStep(rng, table.columns, table.ordered and self._is_single(subtasks), self._name)
        name = self._name("window")
        step = {"from": table.name, **subtasks, **made.parts}
        if not made.keyed:
            step.pop("parallelism", None)
        self._steps[name] = step
        self._add(Table(name, made.columns, ordered=False, timed=made.timed), made.query(table.name))
        if made.doubt is not None:
            self._case.doubts.append(made.doubt.format(rows=made.rows(table.name)))
        if made.late_output:
            self._add(Table(made.late_output, table.columns, False), f"SELECT * FROM {table.name} WHERE FALSE")
