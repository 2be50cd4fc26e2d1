"""Random queries in two dialects: Flink SQL for flowrun, and the same meaning for DuckDB over the finished tables."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.sql.random_tables import A_COLUMNS, B_COLUMNS, C_COLUMNS, Column


@dataclass(frozen=True, slots=True)
class Query:
    """A query as text for both engines; `time`: name of a time attribute among its columns."""

    flink: str
    duck: str
    columns: tuple[Column, ...]
    time: str | None = None
    append: bool = True

    def named(self, *kinds: str) -> list[str]:
        """Names of the columns of some kinds."""
        return [c.name for c in self.columns if c.kind in kinds]


def _table(name: str, columns: tuple[Column, ...]) -> Query:
    text = f"SELECT * FROM {name}"
    return Query(text, text, columns, "ts" if any(c.name == "ts" for c in columns) else None, name != "c")


A, B, C = _table("a", A_COLUMNS), _table("b", B_COLUMNS), _table("c", C_COLUMNS)
Shape = Callable[["Generator"], Query]
COMPARISONS = ("<", "<=", "=", "<>", ">", ">=")


class Generator:
    """Makes one query from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._names = 0

    def query(self) -> Query:
        """A whole query, of one to three levels."""
        return self.chance.choice(SHAPES)(self)

    # -- expressions, the same in both dialects but for a few names

    def integer(self, columns: tuple[Column, ...], depth: int = 0) -> str:
        """An integer expression."""
        names = [c.name for c in columns if c.kind == "int"]
        texts = [c.name for c in columns if c.kind == "text"]
        if depth > 1 or self.chance.random() < 0.4 or not names:
            return self.chance.choice([*names, *names, str(self.chance.randrange(1, 9))])
        left, right = self.integer(columns, depth + 1), self.integer(columns, depth + 1)
        forms = [
            f"({left} + {right})", f"({left} - {right})", f"({left} * 3)", f"ABS({left} - 7)", f"MOD({left}, 5)",
            f"COALESCE({left}, {right}, 0)", f"CASE WHEN {self.condition(columns, depth + 1)} THEN {left} ELSE {right} END",
            f"NULLIF({left}, 2)", f"GREATEST(COALESCE({left}, 0), 3)",
        ]  # fmt: skip
        if texts:
            forms.append(f"CHAR_LENGTH({self.chance.choice(texts)})")
        return self.chance.choice(forms)

    def text(self, columns: tuple[Column, ...]) -> str:
        """A text expression."""
        name = self.chance.choice([c.name for c in columns if c.kind == "text"] or ["'none'"])
        return self.chance.choice(
            [name, name, f"UPPER({name})", f"({name} || 'x')", f"COALESCE({name}, 'none')", f"SUBSTRING({name}, 2, 1)"]
        )

    def condition(self, columns: tuple[Column, ...], depth: int = 0) -> str:
        """A condition."""
        ints = [c.name for c in columns if c.kind == "int"]
        texts = [c.name for c in columns if c.kind == "text"]
        forms = [f"{self.integer(columns, 2)} {self.chance.choice(COMPARISONS)} {self.integer(columns, 2)}"]
        times = [c.name for c in columns if c.kind == "time" and c.name == "ts"]
        if times:
            # whole half seconds are times that rows have; a microsecond is less than any of them can hold
            seconds = self.chance.choice(["00", "07.500", "20", "20.000500", "41.499999", "59.999"])
            bound = [times[0], f"TIMESTAMP '2024-03-01 09:00:{seconds}'"]
            self.chance.shuffle(bound)
            forms.append(f"{bound[0]} {self.chance.choice(COMPARISONS)} {bound[1]}")
        if ints:
            name = self.chance.choice(ints)
            forms += [
                f"{self.chance.randrange(50)} {self.chance.choice(COMPARISONS)} {name}",
                f"{name} IS NOT NULL",
                f"{name} BETWEEN 1 AND 30",
                f"{name} IN (1, 2, 3, 5, 8)",
                f"{name} NOT IN (1, 2)",
            ]
        if texts:
            name = self.chance.choice(texts)
            forms += [f"{name} LIKE 'k%'", f"{name} IS NULL", f"{name} <> 'k1'", f"{name} IN ('k0', 'k1', 'ü€')"]
        if depth < 2:
            inner = [self.condition(columns, depth + 1) for _ in range(2)]
            forms += [f"({inner[0]} AND {inner[1]})", f"({inner[0]} OR {inner[1]})", f"NOT ({inner[0]})"]
        return self.chance.choice(forms)

    def name(self, prefix: str) -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{prefix}{self._names}"

    # -- sources

    def events(self) -> Query:
        """Append-only rows with event time: a table, or a filtered one."""
        base = self.chance.choice([A, A, B])
        return self._filtered(base) if self.chance.random() < 0.4 else base

    def relation(self, depth: int = 0) -> Query:
        """Rows of any kind."""
        if depth > 1 or self.chance.random() < 0.4:
            return self.chance.choice([A, B, C])
        return self.chance.choice([_projection, _aggregate, _aggregate, _union, _distinct])(self)

    def windows(self, base: Query) -> tuple[str, str, list[str]]:
        """Rows with their windows, in both dialects, and the keys that must be grouped by."""
        return _windows(self, base)

    def _filtered(self, base: Query) -> Query:
        condition = self.condition(base.columns)
        return replace(base, flink=f"{base.flink} WHERE {condition}", duck=f"{base.duck} WHERE {condition}")

    def both(self, make: Callable[[str], str], base: Query) -> tuple[str, str]:
        """A text around the base in both dialects."""
        return make(f"({base.flink})"), make(f"({base.duck})")


def _projection(g: Generator) -> Query:
    base = g.relation(1)
    items = [(g.integer(base.columns), "int"), (g.text(base.columns), "text"), (g.integer(base.columns), "int")]
    columns = tuple(Column(g.name("p"), "BIGINT" if k == "int" else "STRING", k) for _, k in items)
    listed = ", ".join(
        f"CAST({e} AS {'BIGINT' if k == 'int' else 'STRING'}) AS {c.name}"
        for (e, k), c in zip(items, columns, strict=True)
    )
    condition = g.condition(base.columns)
    flink, duck = g.both(lambda r: f"SELECT {listed} FROM {r} AS t WHERE {condition}", base)
    return Query(flink, duck, columns, append=base.append)


def _calls(g: Generator, base: Query, count: int) -> tuple[list[str], list[str], tuple[Column, ...]]:
    flink, duck, columns = [], [], []
    for _ in range(count):
        ints, others = base.named("int"), base.named("int", "text", "number")
        kind = g.chance.choice(["count", "countx", "sum", "min", "max", "avg", "distinct", "dsum", "filter", "dec"])
        name = g.name("n")
        value = g.chance.choice(ints) if ints else "1"
        other = g.chance.choice(others)
        numbers = base.named("number")
        column = Column(name, "BIGINT", "int")
        text = {
            "count": "COUNT(*)",
            "countx": f"COUNT({other})",
            "sum": f"SUM(CAST({value} AS BIGINT))",
            "min": f"MIN(CAST({value} AS BIGINT))",
            "max": f"MAX(CAST({value} AS BIGINT))",
            "avg": f"AVG(CAST(ABS({value}) AS BIGINT))",
            "distinct": f"COUNT(DISTINCT {other})",
            "dsum": f"SUM(DISTINCT CAST({value} AS BIGINT))",
            "filter": f"COUNT(*) FILTER (WHERE {g.condition(base.columns, 1)})",
            "dec": f"SUM({numbers[0]})" if numbers else "COUNT(*)",
        }[kind]
        if kind == "dec" and numbers:
            column = Column(name, "DECIMAL(38,2)", "number")
        if kind in ("min", "max") and g.chance.random() < 0.3 and base.named("text"):
            text, column = f"{kind.upper()}({g.chance.choice(base.named('text'))})", Column(name, "STRING", "text")
        theirs = f"CAST(TRUNC(AVG(ABS({value}))) AS BIGINT)" if kind == "avg" else text
        flink.append(f"{text} AS {name}")
        duck.append(f"{theirs} AS {name}")
        columns.append(column)
    return flink, duck, tuple(columns)


def _aggregate(g: Generator) -> Query:
    base = g.relation(1)
    keys = g.chance.sample(base.named("int", "text"), g.chance.choice([0, 1, 1, 2]) if len(base.columns) > 2 else 1)
    flink, duck, columns = _calls(g, base, g.chance.choice([1, 2, 4]))
    kept = tuple(c for k in keys for c in base.columns if c.name == k)
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    having = f" HAVING COUNT(*) {g.chance.choice(['> 1', '< 20', '<> 3'])}" if g.chance.random() < 0.3 else ""
    mine = f"SELECT {', '.join([*keys, *flink])} FROM ({base.flink}) AS t{group}{having}"
    theirs = f"SELECT {', '.join([*keys, *duck])} FROM ({base.duck}) AS t{group}{having}"
    if not keys:  # without rows Flink gives no row for a group without keys, DuckDB one
        theirs = f"SELECT * FROM ({theirs}) AS x WHERE EXISTS (SELECT 1 FROM ({base.duck}) AS e)"
    return Query(mine, theirs, (*kept, *columns), append=False)


def _distinct(g: Generator) -> Query:
    base = g.relation(1)
    names = g.chance.sample(base.named("int", "text"), min(2, len(base.named("int", "text"))))
    flink, duck = g.both(lambda r: f"SELECT DISTINCT {', '.join(names)} FROM {r} AS t", base)
    return Query(flink, duck, tuple(c for n in names for c in base.columns if c.name == n), append=False)


def _union(g: Generator) -> Query:
    left, right = g.relation(1), g.relation(1)
    columns = (Column("x", "BIGINT", "int"), Column("y", "STRING", "text"))
    sides = [(g.integer(s.columns), g.text(s.columns), s) for s in (left, right)]
    operation = g.chance.choice(["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
    item = "SELECT CAST({} AS BIGINT) AS x, CAST({} AS STRING) AS y FROM ({}) AS t"
    flink = f" {operation} ".join(item.format(i, t, s.flink) for i, t, s in sides)
    duck = f" {operation} ".join(item.format(i, t, s.duck) for i, t, s in sides)
    append = left.append and right.append and operation == "UNION ALL"
    return Query(f"SELECT * FROM ({flink}) AS u", f"SELECT * FROM ({duck}) AS u", columns, append=append)


def _join(g: Generator) -> Query:
    left, right = g.relation(1), g.relation(1)
    kind = g.chance.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    pair = g.chance.choice(["int", "text"])
    if not left.named(pair) or not right.named(pair):
        pair = "int"
    if not left.named(pair) or not right.named(pair):
        return _aggregate(g)
    on = f"l.{g.chance.choice(left.named(pair))} = r.{g.chance.choice(right.named(pair))}"
    if g.chance.random() < 0.3 and left.named("int") and right.named("int"):
        on += f" AND l.{g.chance.choice(left.named('int'))} < r.{g.chance.choice(right.named('int'))}"
    items, columns = [], []
    for side, base in (("l", left), ("r", right)):
        for column in g.chance.sample(base.columns, min(3, len(base.columns))):
            if column.kind == "time":
                continue
            name = g.name("j")
            items.append(f"{side}.{column.name} AS {name}")
            columns.append(Column(name, column.type, column.kind))
    if not items:
        return _aggregate(g)
    text = "SELECT " + ", ".join(items) + " FROM ({}) AS l " + kind + " ({}) AS r ON " + on
    return Query(text.format(left.flink, right.flink), text.format(left.duck, right.duck), tuple(columns), append=False)


def joined_by_branches(g: Generator) -> Query:
    """A join, or a correlated subquery, whose condition is an OR of branches that share an equality."""
    left, right = (g.chance.choice([A, B, C]) for _ in range(2))
    kind = g.chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN", ",", "count", "exists"])
    key = g.chance.choice([n for n in "kg" if n in left.named("text", "int") and n in right.named("text", "int")])
    branches = []
    for _ in range(g.chance.choice([2, 2, 3])):
        parts = [g.chance.choice([f"l.{key} = r.{key}", f"r.{key} = l.{key}"])]
        if kind != "count":  # there, what is left of the condition may not read the row around
            parts += [_qualified(g.condition(left.columns, 1), "l") for _ in range(g.chance.choice([0, 1]))]
        parts += [_qualified(g.condition(right.columns, 1), "r") for _ in range(g.chance.choice([0, 1]))]
        branches.append("(" + " AND ".join(g.chance.sample(parts, len(parts))) + ")")
    either = " OR ".join(branches)
    if kind == ",":
        text = f"SELECT l.id AS a, r.id AS b FROM ({left.flink}) AS l, ({right.flink}) AS r WHERE {either}"
    elif kind == "count":
        text = f"SELECT l.id AS a, l.id AS b FROM ({left.flink}) AS l WHERE (SELECT COUNT(*) FROM ({right.flink}) AS r WHERE {either}) > 1"
    elif kind == "exists":
        text = f"SELECT l.id AS a, l.id AS b FROM ({left.flink}) AS l WHERE EXISTS (SELECT 1 FROM ({right.flink}) AS r WHERE {either})"
    else:
        text = f"SELECT l.id AS a, r.id AS b FROM ({left.flink}) AS l {kind} ({right.flink}) AS r ON {either}"
    return Query(text, text, (Column("a", "BIGINT", "int"), Column("b", "BIGINT", "int")), append=False)


def joined_by_commas(g: Generator) -> Query:
    """Tables between commas, some connected only by tables that come later."""
    count = g.chance.choice([3, 3, 4])
    tables = [(f"t{i}", g.chance.choice([A, B, C])) for i in range(count)]
    conditions = []
    for place in range(1, count):  # a tree of connections; which table is written where has nothing to do with it
        (one, left), (other, right) = tables[place], g.chance.choice(tables[:place])
        key = g.chance.choice(["k", "id", "id"])
        conditions.append(f"{one}.{key} = {other}.{key}")
        if g.chance.random() < 0.3:
            conditions.append(
                f"{one}.{g.chance.choice(left.named('int'))} <= {other}.{g.chance.choice(right.named('int'))}"
            )
        if g.chance.random() < 0.5:
            conditions.append(_qualified(g.condition(left.columns, 1), one))
    if g.chance.random() < 0.2:
        conditions.remove(g.chance.choice(conditions))
    listed = [f"{n}.id AS {n}_id" for n, _ in tables]
    rows = ", ".join(f"(SELECT * FROM {t.flink[14:]} WHERE id < 40) AS {n}" for n, t in g.chance.sample(tables, count))
    text = f"SELECT {', '.join(listed)} FROM {rows} WHERE {' AND '.join(g.chance.sample(conditions, len(conditions)))}"
    return Query(text, text, tuple(Column(f"{n}_id", "BIGINT", "int") for n, _ in tables), append=False)


def _qualified(condition: str, table: str) -> str:
    """The condition with its columns named by their table."""
    return re.sub(r"(?<!')\b(id|k|g|v|w|d|ts)\b", rf"{table}.\1", condition)


def _subquery(g: Generator) -> Query:
    base, other = g.relation(1), g.relation(1)
    ints, theirs = base.named("int"), other.named("int")
    if not ints or not theirs:
        return _aggregate(g)
    mine, its = g.chance.choice(ints), g.chance.choice(theirs)
    kind = g.chance.choice(["in", "not in", "exists", "not exists", "scalar", "correlated"])
    listed = ", ".join(c.name for c in base.columns if c.kind != "time")
    inner = {
        "in": f"o.{mine} IN (SELECT {its} FROM ({{}}) AS i)",
        "not in": f"o.{mine} NOT IN (SELECT {its} FROM ({{}}) AS i WHERE {its} IS NOT NULL)",
        "exists": f"EXISTS (SELECT 1 FROM ({{}}) AS i WHERE i.{its} = o.{mine})",
        "not exists": f"NOT EXISTS (SELECT 1 FROM ({{}}) AS i WHERE i.{its} = o.{mine})",
        "scalar": f"o.{mine} > (SELECT MIN({its}) FROM ({{}}) AS i)",
        "correlated": f"o.{mine} <= (SELECT MAX(i.{its} + 1) FROM ({{}}) AS i WHERE i.{its} = o.{mine})",
    }[kind]
    text = f"SELECT {listed} FROM ({{}}) AS o WHERE {inner}"
    columns = tuple(c for c in base.columns if c.kind != "time")
    return Query(text.format(base.flink, other.flink), text.format(base.duck, other.duck), columns, append=False)


def _aggregate_of_join(g: Generator) -> Query:
    inner = _join(g)
    keys = g.chance.sample(inner.named("int", "text"), 1) if inner.named("int", "text") else []
    flink, duck, columns = _calls(g, inner, 3)
    if not keys:
        return inner
    kept = tuple(c for c in inner.columns if c.name in keys)
    mine = f"SELECT {', '.join([*keys, *flink])} FROM ({inner.flink}) AS t GROUP BY {keys[0]}"
    theirs = f"SELECT {', '.join([*keys, *duck])} FROM ({inner.duck}) AS t GROUP BY {keys[0]}"
    return Query(mine, theirs, (*kept, *columns), append=False)


def _top(g: Generator) -> Query:
    base = g.chance.choice([A, B, C, _unique_aggregate(g)])
    key = g.chance.choice(base.named("int", "text"))
    order = g.chance.choice(base.named("int"))
    unique = base.columns[0].name
    rows = g.chance.choice([1, 2, 3, 5])
    way = g.chance.choice(["ASC", "DESC"])
    nulls = "FIRST" if way == "ASC" else "LAST"
    ranked = g.chance.random() < 0.5
    listed = ", ".join([c.name for c in base.columns if c.kind != "time"] + (["rn"] if ranked else []))
    text = (
        f"SELECT {listed} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {order} {way}@, {unique}) AS rn "
        f"FROM ({{}}) AS t) AS q WHERE rn <= {rows}"
    )
    columns = tuple(c for c in base.columns if c.kind != "time") + ((Column("rn", "BIGINT", "int"),) if ranked else ())
    flink = text.format(base.flink).replace("@", "")
    return Query(flink, text.format(base.duck).replace("@", f" NULLS {nulls}"), columns, append=False)


def _limit(g: Generator) -> Query:
    """Rows in the order of a unique column, of which conditions and a second LIMIT take some; each LIMIT with or without OFFSET."""
    base = g.chance.choice([A, B, C])
    way = g.chance.choice(["ASC", "DESC"])
    listed = ", ".join(c.name for c in base.columns if c.kind != "time")
    columns = tuple(c for c in base.columns if c.kind != "time")
    levels = []
    for most in (40, 12)[: g.chance.choice([1, 2, 2])]:
        where = f" WHERE {g.condition(columns, 1)}" if g.chance.random() < 0.5 else ""
        offset = f" OFFSET {g.chance.choice([1, 3, 7])}" if g.chance.random() < 0.5 else ""
        levels.append(f"SELECT {listed} FROM {{}}{where} ORDER BY id {way} LIMIT {g.chance.randrange(1, most)}{offset}")
    above = f" WHERE {g.condition(columns, 1)}" if g.chance.random() < 0.5 else ""

    def text(rows: str) -> str:
        for number, level in enumerate(levels):
            rows = f"({level.format(rows)}) AS l{number}"
        return f"SELECT {listed} FROM {rows}{above}"

    flink, duck = (text(f"({rows}) AS t") for rows in (base.flink, base.duck))
    return Query(flink, duck, columns, append=False)


def _unique_aggregate(g: Generator) -> Query:
    """Groups by id modulo something: updating rows with a unique first column."""
    base = g.chance.choice([A, C])
    text = f"SELECT MOD(id, {g.chance.choice([3, 11])}) AS u, COUNT(*) AS n, MAX(k) AS k FROM {base.flink[14:]} GROUP BY MOD(id, @)"
    text = text.replace("@", text.split("MOD(id, ")[1].split(")", maxsplit=1)[0])
    return Query(
        text,
        text,
        (Column("u", "BIGINT", "int"), Column("n", "BIGINT", "int"), Column("k", "STRING", "text")),
        append=False,
    )


def _dedup(g: Generator) -> Query:
    base = g.events()
    key = g.chance.choice(base.named("int", "text"))
    way = g.chance.choice(["ASC", "DESC"])
    listed = ", ".join(c.name for c in base.columns if c.kind != "time")
    text = (
        f"SELECT {listed} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY ts {way}) AS rn "
        "FROM ({}) AS t) AS q WHERE rn = 1"
    )
    columns = tuple(c for c in base.columns if c.kind != "time")
    return Query(text.format(base.flink), text.format(base.duck), columns, append=False)


def _over(g: Generator) -> Query:
    base = g.events()
    key = g.chance.choice(base.named("text", "int"))
    value = g.chance.choice(base.named("int"))
    unit = g.chance.choice(["ROWS BETWEEN 2 PRECEDING", "ROWS BETWEEN UNBOUNDED PRECEDING", "RANGE BETWEEN INTERVAL '7' SECOND PRECEDING",
                            "RANGE BETWEEN UNBOUNDED PRECEDING"])  # fmt: skip
    calls = [f"SUM({value})", "COUNT(*)", f"MIN({value})", f"MAX({value})", f"COUNT(DISTINCT {value})"]
    chosen = g.chance.sample(calls, 2)
    names = [g.name("o"), g.name("o")]
    window = f"(PARTITION BY {key} ORDER BY ts {unit} AND CURRENT ROW)"
    listed = ", ".join(["id", *(f"{c} OVER {window} AS {n}" for c, n in zip(chosen, names, strict=True))])
    text = f"SELECT {listed} FROM ({{}}) AS t"
    columns = (base.columns[0], *(Column(n, "BIGINT", "int") for n in names))
    return Query(text.format(base.flink), text.format(base.duck), columns)


def over_any_frame(g: Generator) -> Query:
    """OVER over a table that changes: whole partitions, rows behind the current one, ranges of numbers."""
    base = C
    value = g.chance.choice(base.named("int"))
    partition = g.chance.choice(["", f"PARTITION BY {g.chance.choice(base.named('text'))} "])
    calls = [f"SUM({value})", "COUNT(*)", f"MIN({value})", f"MAX({value})", f"COUNT(DISTINCT {value})"]
    names = [g.name("o"), g.name("o")]
    flink, duck = ["id"], ["id"]
    for name in names:
        numbers = g.chance.choice(base.named("int", "number"))
        way = g.chance.choice(["ASC", "DESC"])
        nulls = "NULLS FIRST" if way == "ASC" else "NULLS LAST"
        start, end = sorted((g.chance.randrange(-6, 7), g.chance.randrange(-6, 7)))
        ends = [_frame_end(start), _frame_end(end)]
        if g.chance.random() < 0.3:
            ends[0] = "UNBOUNDED PRECEDING"
        if g.chance.random() < 0.3:
            ends[1] = "UNBOUNDED FOLLOWING"
        window = g.chance.choice(
            [
                f"({partition})",
                f"({partition}ORDER BY {numbers} {way}@ RANGE BETWEEN {ends[0]} AND {ends[1]})",
                f"({partition}ORDER BY {numbers} {way}@, id ROWS BETWEEN {ends[0]} AND {ends[1]})",
            ]
        )
        call = f"{g.chance.choice(calls)} OVER {window} AS {name}"
        flink.append(call.replace("@", ""))
        duck.append(call.replace("@", f" {nulls}"))
    mine, theirs = (f"SELECT {', '.join(items)} FROM ({base.flink}) AS t" for items in (flink, duck))
    return Query(mine, theirs, (base.columns[0], *(Column(n, "BIGINT", "int") for n in names)), append=False)


def _frame_end(offset: int) -> str:
    if offset == 0:
        return "CURRENT ROW"
    return f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"


def _windows(g: Generator, base: Query) -> tuple[str, str, list[str]]:
    """(rows with window_start and window_end in Flink SQL, the same in DuckDB, keys that must be grouped by)."""
    ms = "epoch_ms(ts)"
    rest = "SELECT t.*, epoch_ms({start}) AS window_start, epoch_ms({end}) AS window_end FROM {source}"
    kind = g.chance.choice(["TUMBLE", "TUMBLE", "HOP", "CUMULATE", "SESSION"])
    view = f"({base.flink})"
    match kind:
        case "TUMBLE":
            size, offset = g.chance.choice([1, 10, 60]), g.chance.choice([0, 0, 3])
            start = f"{ms} - ((({ms} - {offset * 1000}) % {size * 1000}) + {size * 1000}) % {size * 1000}"
            more = f", INTERVAL '{offset}' SECOND" if offset else ""
            call = f"TUMBLE(TABLE base, DESCRIPTOR(ts), INTERVAL '{size}' SECOND{more})"
            duck = rest.format(start=start, end=f"{start} + {size * 1000}", source=f"({base.duck}) AS t")
        case "HOP":
            slide, times = g.chance.choice([2, 5]), g.chance.choice([1, 2, 6])
            step, size = slide * 1000, slide * times * 1000
            start = f"({ms} - {ms} % {step} - i.i * {step})"
            call = f"HOP(TABLE base, DESCRIPTOR(ts), INTERVAL '{slide}' SECOND, INTERVAL '{slide * times}' SECOND)"
            duck = rest.format(
                start=start, end=f"{start} + {size}", source=f"({base.duck}) AS t, range({times}) AS i(i)"
            )
        case "CUMULATE":
            step_s, times = g.chance.choice([2, 5]), g.chance.choice([2, 4])
            step, size = step_s * 1000, step_s * times * 1000
            start = f"({ms} - {ms} % {size})"
            call = (
                f"CUMULATE(TABLE base, DESCRIPTOR(ts), INTERVAL '{step_s}' SECOND, INTERVAL '{step_s * times}' SECOND)"
            )
            source = f"({base.duck}) AS t, range(1, {times + 1}) AS i(i) WHERE {start} + i.i * {step} > {ms}"
            duck = rest.format(start=start, end=f"{start} + i.i * {step}", source=source)
        case _:
            gap = g.chance.choice([1, 2, 5])
            key = g.chance.choice(base.named("text"))
            call = f"SESSION(TABLE base PARTITION BY {key}, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND)"
            marked = (
                f"SELECT *, CASE WHEN {ms} - LAG({ms}) OVER p <= {gap * 1000} THEN 0 ELSE 1 END AS fresh "
                f"FROM ({base.duck}) AS t0 WINDOW p AS (PARTITION BY {key} ORDER BY ts)"
            )
            numbered = f"SELECT *, SUM(fresh) OVER (PARTITION BY {key} ORDER BY ts) AS number FROM ({marked}) AS t1"
            bounds = f"OVER (PARTITION BY {key}, number)"
            duck = (
                f"SELECT *, MIN(ts) {bounds} AS window_start, epoch_ms(epoch_ms(MAX(ts) {bounds}) + {gap * 1000}) AS window_end "
                f"FROM ({numbered}) AS t2"
            )
            return _tvf(call, view), duck, [key]
    return _tvf(call, view), duck, []


def _tvf(call: str, view: str) -> str:
    """The call over a view, which is written into it as a comment: `script` takes it out again."""
    return f"SELECT * FROM TABLE({call.replace('TABLE base', f'TABLE VIEW_OF/*{view}*/')})"


_VIEW = re.compile(r"VIEW_OF/\*(.*?)\*/")


def script(query: Query, tables: str, sink: str) -> str:
    """The whole script: tables, views, and the query's INSERT into `result_sink`, which has the WITH clause `sink`."""
    views = ["CREATE VIEW versions AS SELECT id, k, g, w, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn "
             "FROM b) WHERE rn = 1;"]  # fmt: skip

    def named(found: re.Match[str]) -> str:
        views.append(f"CREATE VIEW view{len(views)} AS SELECT * FROM {found[1]} AS s1;")
        return f"view{len(views) - 1}"

    text = _VIEW.sub(named, query.flink).replace("VERSIONS FOR", "versions FOR")
    columns = ", ".join(f"`{c.name}` {c.type}" for c in query.columns)
    return "\n".join(
        [
            tables,
            *views,
            f"CREATE TABLE result_sink ({columns}) WITH ({sink});",
            f"INSERT INTO result_sink\n{text};",
            "",
        ]
    )


def window_aggregate(g: Generator) -> Query:
    """Groups of a window."""
    base = g.events()
    flink, duck, keys = _windows(g, base)
    more = g.chance.sample(base.named("int", "text"), g.chance.choice([0, 1]))
    keys = list(dict.fromkeys([*keys, *more]))
    mine, theirs, columns = _calls(g, base, g.chance.choice([1, 3]))
    group = ["window_start", "window_end", *keys]
    having = " HAVING COUNT(*) > 1" if g.chance.random() < 0.3 else ""
    tail = f" GROUP BY {', '.join(group)}{having}"
    shown = [Column("window_start", "TIMESTAMP(3)", "time"), Column("window_end", "TIMESTAMP(3)", "time")]
    kept = tuple(c for k in keys for c in base.columns if c.name == k)
    return Query(
        f"SELECT {', '.join([*group, *mine])} FROM ({flink}) AS w{tail}",
        f"SELECT {', '.join([*group, *theirs])} FROM ({duck}) AS w{tail}",
        (*shown, *kept, *columns),
    )


def _interval_join(g: Generator) -> Query:
    kind = g.chance.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    low, high = g.chance.choice([(0, 5), (3, 10), (10, 0), (1, 1)])
    on = f"l.{g.chance.choice(['k = r.k', 'g = r.g'])} AND r.ts BETWEEN l.ts - INTERVAL '{low}' SECOND AND l.ts + INTERVAL '{high}' SECOND"
    if g.chance.random() < 0.3:
        on += " AND l.v > r.w"
    text = f"SELECT l.id AS l, r.id AS r, l.v AS v, r.w AS w FROM a AS l {kind} b AS r ON {on}"
    columns = tuple(Column(n, "BIGINT", "int") for n in ("l", "r", "v", "w"))
    return Query(text, text, columns)


def _temporal_join(g: Generator) -> Query:
    kind = g.chance.choice(["JOIN", "LEFT JOIN"])
    flink = f"SELECT l.id AS id, l.v AS v, r.w AS w FROM a AS l {kind} VERSIONS FOR SYSTEM_TIME AS OF l.ts AS r ON l.k = r.k"
    duck = f"SELECT l.id AS id, l.v AS v, r.w AS w FROM a AS l ASOF {kind} b AS r ON l.k = r.k AND l.ts >= r.ts"
    return Query(flink, duck, tuple(Column(n, "BIGINT", "int") for n in ("id", "v", "w")))


def _window_join(g: Generator) -> Query:
    size = g.chance.choice([2, 10]) * 1000
    kind = g.chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    sides = {
        n: f"SELECT * FROM TABLE(TUMBLE(TABLE {n}, DESCRIPTOR(ts), INTERVAL '{size // 1000}' SECOND))" for n in "ab"
    }
    start = f"epoch_ms(epoch_ms(ts) - epoch_ms(ts) % {size})"
    theirs = {
        n: f"SELECT *, {start} AS window_start, {start} + INTERVAL {size} MILLISECOND AS window_end FROM {n}"
        for n in "ab"
    }
    text = (
        "SELECT l.id AS l, r.id AS r, COALESCE(l.window_start, r.window_start) AS s FROM ({}) AS l "
        f"{kind} ({{}}) AS r ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.k = r.k"
    )
    columns = (Column("l", "BIGINT", "int"), Column("r", "BIGINT", "int"), Column("s", "TIMESTAMP(3)", "time"))
    return Query(text.format(sides["a"], sides["b"]), text.format(theirs["a"], theirs["b"]), columns)


SHAPES: tuple[Shape, ...] = (
    _projection, _aggregate, _aggregate, _distinct, _union, _join, _join, _subquery, _aggregate_of_join, _top, _limit, _dedup, _over,
    window_aggregate, window_aggregate, _interval_join, _temporal_join, _window_join,
)  # fmt: skip
