"""A random windowed step, in YAML and in DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.end_to_end.random_expressions import (
    ARRAY,
    BOOLEAN,
    CASTS,
    DATE,
    DECIMAL,
    DOUBLE,
    FUZZY,
    INT,
    STRING,
    TIMESTAMP,
    WIDE,
    Expressions,
    Text,
)

_KEY_KINDS = (INT, STRING, STRING, BOOLEAN, DATE, DECIMAL, TIMESTAMP)
_AVERAGE_OF_DECIMALS = (  # half up to six digits, in whole numbers
    "CAST(sign({u}) * ((abs({u}) * 2 + {n}) // (2 * {n})) AS DECIMAL(30, 0)) * CAST(0.000001 AS DECIMAL(6, 6))"
)


class WindowStep:
    """The parts of a step from filter to having.

    Attributes:
        parts: the YAML.
        columns: of the output.
        keyed: it has keys.
        timed: the results have a finite event time.
        late_output: the name of its late rows, of which there are none; None if it has no such output.
        doubt: a query (of `{rows}`) for rows whose result depends on the order of arrival, or None.
    """

    def __init__(
        self, rng: random.Random, columns: Mapping[str, str], ordered: bool, name: Callable[[str], str]
    ) -> None:
        self._rng = rng
        self._input = dict(columns)
        self._ordered = ordered
        self._name = name
        self.parts: dict[str, Any] = {}
        self.late_output: str | None = None
        self.doubt: str | None = None
        self.timed = True
        self._before()
        keys = [] if rng.random() < 0.2 else [self._key() for _ in range(rng.choice((1, 1, 2)))]
        self.keyed = bool(keys)
        self._drops_nulls = self.keyed and rng.random() < 0.2
        if self.keyed:
            self.parts["null_keys"] = "drop" if self._drops_nulls else "group"
        self.columns = {column: kind for column, kind, _ in keys}
        self._keys = [duck for _, _, duck in keys] or ["0"]
        kinds = ["tumbling", "sliding", "cumulative", "session", *(["count", "global"] if rng.random() < 0.3 else [])]
        kind = rng.choice(kinds)
        self._window = getattr(self, f"_{kind}")()
        if kind not in ("count", "global"):
            self.columns |= {"window_start": TIMESTAMP, "window_end": TIMESTAMP}
            self._extras(kind)
        else:
            self.timed = False
        self._aggregates = [self._aggregate() for _ in range(rng.randint(1, 4))]
        if kind == "session":
            # what a session's arrival order is after a merge is nobody's promise
            assert not self._ordered
        self._having()

    def _before(self) -> None:
        rng, self._prefix = self._rng, "SELECT * FROM {table}"
        if rng.random() < 0.3:
            made = Expressions(rng, self._input).make(BOOLEAN)
            self.parts["filter"] = made.ours
            self._prefix += " WHERE " + made.duck.replace("{", "{{").replace("}", "}}")
        if rng.random() < 0.2:
            kind, column = rng.choice((INT, STRING, DECIMAL, DOUBLE)), self._name("c")
            made = Expressions(rng, self._input).make(kind)
            self.parts["select"] = ["*", f"{made.ours} AS {column}"]
            duck = made.duck.replace("{", "{{").replace("}", "}}")
            self._prefix = f"SELECT *, {duck} AS {column} FROM ({self._prefix})"
            self._input[column] = kind

    def _key(self) -> tuple[str, str, str]:
        """Name, kind and DuckDB text of a key."""
        rng = self._rng
        choice = rng.choice(_KEY_KINDS)
        named = [n for n, k in self._input.items() if k == choice and not n.startswith("window_")]
        keys = self.parts.setdefault("key_by", [])
        if named and rng.random() < 0.6:
            column = rng.choice(named)
            if column not in keys:
                keys.append(column)
                return column, choice, column
        column, made = self._name("k"), Expressions(rng, self._input).make(choice, 1)
        keys.append(f"{made.ours} AS {column}")
        return column, choice, made.duck

    # -- windows: each gives the query from a subquery with keys to one with __start and __end, in which {rows} are the rows ---

    def _tumbling(self) -> str:
        size = self._rng.choice((1, 1_000, 7_777, 60_000, 3_600_000))
        return self._sliding_by("tumbling", size, size)

    def _sliding(self) -> str:
        slide = self._rng.choice((500, 3_000, 60_000))
        size = slide * self._rng.choice((1, 2, 5))
        if self._rng.random() < 0.3:
            size += slide // 3
        return self._sliding_by("sliding", size, slide)

    def _sliding_by(self, kind: str, size: int, slide: int) -> str:
        self.parts["window"] = {"type": kind, "size": f"{size}ms"}
        if kind == "sliding":
            self.parts["window"]["slide"] = f"{slide}ms"
        offset = self._offset(min(size, slide))
        last = f"(__time - ((__time - ({offset})) % {slide} + {slide}) % {slide})"
        return (
            f"SELECT *, __start + {size} AS __end FROM (SELECT *, {last} - r.i * {slide} AS __start "
            f"FROM {{rows}}, range({-(-size // slide)}) r(i)) WHERE __start + {size} > __time"
        )

    def _cumulative(self) -> str:
        step = self._rng.choice((500, 3_000, 60_000))
        size = step * self._rng.choice((1, 3, 6))
        self.parts["window"] = {"type": "cumulative", "size": f"{size}ms", "step": f"{step}ms"}
        offset = self._offset(step)
        start = f"(__time - ((__time - ({offset})) % {size} + {size}) % {size})"
        return (
            f"SELECT *, __start + (r.i + 1) * {step} AS __end FROM (SELECT *, {start} AS __start FROM {{rows}}), "
            f"range({size // step}) r(i) WHERE __start + (r.i + 1) * {step} > __time"
        )

    def _offset(self, below: int) -> int:
        offset = self._rng.choice((0, 0, below // 3, -(below // 4)))
        if offset:
            self.parts["window"]["offset"] = f"{offset}ms"
        return offset

    def _session(self) -> str:
        gap = self._rng.choice((1, 101, 2_003, 29_989))
        self.parts["window"] = {"type": "session", "gap": f"{gap}ms"}
        self._ordered = False
        keys = ", ".join(f"__key{i}" for i in range(len(self._keys)))
        # a row that touches a session extends it unless it has fired just now
        lag = f"lag(__time) OVER (PARTITION BY {keys} ORDER BY __time)"
        self.doubt = f"SELECT 1 FROM (SELECT __time - {lag} AS __distance FROM {{rows}}) WHERE __distance = {gap}"
        return (
            f"SELECT *, min(__time) OVER (PARTITION BY {keys}, __session) AS __start, "
            f"max(__time) OVER (PARTITION BY {keys}, __session) + {gap} AS __end FROM ("
            f"SELECT *, sum(__new) OVER (PARTITION BY {keys} ORDER BY __row) AS __session FROM ("
            f"SELECT *, CASE WHEN __time - lag(__time) OVER (PARTITION BY {keys} ORDER BY __row) <= {gap} THEN 0 ELSE 1 "
            f"END AS __new FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY __time) AS __row FROM {{rows}})))"
        )

    def _count(self) -> str:
        if not self._ordered:
            return self._global()
        size = self._rng.choice((1, 2, 5))
        slide = self._rng.choice((size, size, 1, 3))
        slide = min(size, slide)
        self.parts["window"] = {"type": "count", "size": size, **({} if slide == size else {"slide": slide})}
        keys = ", ".join(f"__key{i}" for i in range(len(self._keys)))
        return (
            f"SELECT *, r.i AS __start, 1 AS __end FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY __place) "
            f"AS __row, count(*) OVER (PARTITION BY {keys}) AS __rows FROM {{rows}}), range({slide}, 200, {slide}) r(i) "
            f"WHERE r.i <= __rows AND __row <= r.i AND __row > r.i - {size}"
        )

    def _global(self) -> str:
        self.parts["window"] = {"type": "global"}
        return "SELECT *, 0 AS __start, 1 AS __end FROM {rows}"

    def _extras(self, kind: str) -> None:
        """What changes nothing while no row is late, but may choose another operator."""
        rng, window = self._rng, self.parts["window"]
        if rng.random() < 0.2:
            window["allowed_lateness"] = rng.choice(("1ms", "10s"))
        if rng.random() < 0.2:
            self.late_output = window["late_output"] = self._name("late")
        if kind != "cumulative" and rng.random() < 0.15:
            window["trigger"] = {"late_count": 2}
        if kind != "cumulative" and rng.random() < 0.1:
            window["evictor"] = {"count": 1_000_000}

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def _aggregate(self) -> str:
        rng, name = self._rng, self._name("g")
        expressions = Expressions(rng, self._input)
        condition = expressions.make(BOOLEAN, 1) if rng.random() < 0.3 else None
        ours, duck, kind = self._call(expressions, condition)
        if condition is not None:
            ours += f" FILTER (WHERE {condition.ours})"
        self.parts.setdefault("aggregate", []).append(f"{ours} AS {name}")
        self.columns[name] = kind
        return f"{duck} AS {name}"

    def _call(self, expressions: Expressions, condition: Text | None) -> tuple[str, str, str]:
        rng = self._rng
        filtered = "" if condition is None else f" FILTER (WHERE {condition.duck})"
        functions = ["COUNT(*)", "COUNT", "COUNT", "SUM", "SUM", "AVG", "MIN", "MAX", "STDDEV_POP", "VAR_SAMP"]
        if self._ordered:
            functions += ["FIRST_VALUE", "LAST_VALUE", "LISTAGG", "ARRAY_AGG"] * 2
        function = rng.choice(functions)
        distinct = "DISTINCT " if rng.random() < 0.3 else ""
        if function == "COUNT(*)":
            return "COUNT(*)", "count(*)" + filtered, INT
        kind = rng.choice(tuple(CASTS))
        if function in ("SUM", "AVG"):
            kind = rng.choice((INT, DOUBLE, DECIMAL))
        elif function in ("STDDEV_POP", "VAR_SAMP"):
            kind = DOUBLE
        elif function == "LISTAGG":
            kind = STRING
        made = expressions.make(kind, rng.choice((0, 1, 1, 2)))
        if kind == DECIMAL:
            made = Text(*(f"CAST({text} AS DECIMAL(16, 2))" for text in (made.ours, made.duck)))
        value = distinct + made.duck
        match function:
            case "SUM":
                duck = f"sum({value}){filtered}"
                return f"SUM({distinct}{made.ours})", duck, WIDE if kind == DECIMAL else kind
            case "AVG":
                total, count = f"sum({value}){filtered}", f"count({value}){filtered}"
                count = f"NULLIF({count}, 0)"
                unscaled = f"CAST({total} * 1000000 AS HUGEINT)"
                exact = _AVERAGE_OF_DECIMALS.format(u=unscaled, n=count)
                duck = {INT: f"{total} // {count}", DOUBLE: f"avg({value}){filtered}", DECIMAL: exact}[kind]
                result = {INT: INT, DOUBLE: FUZZY, DECIMAL: WIDE}[kind]
                return f"AVG({distinct}{made.ours})", duck, result
            case "FIRST_VALUE" | "LAST_VALUE":
                both = f"({made.duck}) IS NOT NULL" + ("" if condition is None else f" AND ({condition.duck})")
                called = f"{function[:-6].lower()}({made.duck} ORDER BY __place) FILTER (WHERE {both})"
                return f"{function}({made.ours})", called, kind
            case "LISTAGG":
                return f"LISTAGG({made.ours}, '|')", f"string_agg({made.duck}, '|' ORDER BY __place){filtered}", STRING
            case "ARRAY_AGG":
                return f"ARRAY_AGG({made.ours})", f"array_agg({made.duck} ORDER BY __place){filtered}", ARRAY
            case "COUNT":
                return f"COUNT({distinct}{made.ours})", f"count({value}){filtered}", INT
            case "MIN" | "MAX":
                return f"{function}({distinct}{made.ours})", f"{function.lower()}({value}){filtered}", kind
            case _:
                return f"{function}({distinct}{made.ours})", f"{function.lower()}({value}){filtered}", FUZZY

    def _having(self) -> None:
        self._condition = "TRUE"
        if self._rng.random() < 0.25:
            made = Expressions(self._rng, self.columns).make(BOOLEAN, 1)
            self.parts["having"] = made.ours
            self._condition = made.duck

    def rows(self, table: str) -> str:
        """The query of the rows that enter the window, with their keys."""
        keys = ", ".join(f"{duck} AS __key{i}" for i, duck in enumerate(self._keys))
        rows = f"SELECT *, {keys} FROM ({self._prefix.format(table=table)})"
        if self._drops_nulls:
            known = " AND ".join(f"__key{i} IS NOT NULL" for i in range(len(self._keys)))
            rows = f"SELECT * FROM ({rows}) WHERE {known}"
        return f"({rows})"

    def query(self, table: str) -> str:
        """The step over a table of the script."""
        names = [f"__key{i}" for i in range(len(self._keys))]
        outputs = [f"__key{i} AS {name}" for i, name in enumerate(self.columns) if self.keyed and i < len(self._keys)]
        if "window_start" in self.columns and self.timed:
            outputs += ["epoch_ms(__start) AS window_start", "epoch_ms(__end) AS window_end"]
        outputs += [*self._aggregates, "__end - 1 AS __time", "0 AS __place"]
        return (
            f"SELECT * FROM (SELECT {', '.join(outputs)} FROM ({self._window.format(rows=self.rows(table))}) "
            f"GROUP BY {', '.join(names)}, __start, __end) WHERE {self._condition}"
        )
