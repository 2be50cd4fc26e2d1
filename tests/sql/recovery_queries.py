"""Kinds of queries whose state has to survive: those of the random queries, and more that keep state of their own."""

from __future__ import annotations

from tests.sql import random_queries
from tests.sql.random_queries import Generator, Query, Shape
from tests.sql.random_tables import Column

BIGINT = "BIGINT"


def _integers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(n, BIGINT, "int") for n in names)


def grouping_sets(g: Generator) -> Query:
    """GROUPING SETS, CUBE, ROLLUP over an append-only or an updating table."""
    table = g.chance.choice(["a", "b"])
    sets = g.chance.choice(["GROUPING SETS ((k, g), (k), ())", "CUBE (k, g)", "ROLLUP (g, k)"])
    text = f"SELECT k, g, COUNT(*) AS n, COUNT(DISTINCT id) AS d, MAX(id) AS hi, GROUPING(k) AS gk FROM {table} GROUP BY {sets}"
    text = f"SELECT k, g, n, d, hi, CAST(gk AS BIGINT) AS gk FROM ({text}) AS s"
    return Query(
        text,
        text,
        (Column("k", "STRING", "text"), Column("g", "INT", "int"), *_integers("n", "d", "hi", "gk")),
        append=False,
    )


def window_top(g: Generator) -> Query:
    """The best of each window, or its first or last."""
    base = g.events()
    flink, duck, keys = g.windows(base)
    keys = keys or g.chance.sample(base.named("text", "int"), g.chance.choice([0, 1]))
    value = base.named("int")[-1]
    order = g.chance.choice([f"{value}, id", "id DESC", "ts", "ts DESC"])
    rows = 1 if "ts" in order else g.chance.choice([1, 2, 4])
    parts = ", ".join(["window_start", "window_end", *keys])
    text = (
        f"SELECT window_start, window_end, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {parts} ORDER BY {{order}}) AS rn "
        f"FROM ({{}}) AS w) AS q WHERE rn <= {rows}"
    )
    columns = (
        Column("window_start", "TIMESTAMP(3)", "time"),
        Column("window_end", "TIMESTAMP(3)", "time"),
        *_integers("id"),
    )
    theirs = order.replace(f"{value},", f"{value} NULLS FIRST,")
    return Query(text.format(flink, order=order), text.format(duck, order=theirs), columns)


def window_rows(g: Generator) -> Query:
    """Rows with their windows, of sessions too."""
    base = g.events()
    flink, duck, _ = g.windows(base)
    text = "SELECT id, window_start, window_end FROM ({}) AS w"
    columns = (
        *_integers("id"),
        Column("window_start", "TIMESTAMP(3)", "time"),
        Column("window_end", "TIMESTAMP(3)", "time"),
    )
    return Query(text.format(flink), text.format(duck), columns)


def windows_of_windows(g: Generator) -> Query:
    """Windows over the results of smaller ones."""
    inner = (
        "SELECT window_time AS wt, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND)) "
        "GROUP BY window_start, window_end, window_time, k"
    )
    flink = (
        f"WITH small AS ({inner}) SELECT window_start, k, SUM(n) AS n, COUNT(*) AS m "
        "FROM TABLE(TUMBLE(TABLE small, DESCRIPTOR(wt), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k"
    )
    ms = "epoch_ms(ts)"
    duck = (
        f"SELECT epoch_ms({ms} - {ms} % 10000) AS window_start, k, COUNT(*) AS n, COUNT(DISTINCT {ms} - {ms} % 2000) AS m "
        f"FROM a GROUP BY {ms} - {ms} % 10000, k"
    )
    return Query(
        flink,
        duck,
        (Column("window_start", "TIMESTAMP(3)", "time"), Column("k", "STRING", "text"), *_integers("n", "m")),
    )


def window_semi_join(g: Generator) -> Query:
    """Rows of a window that have, or have not, a partner in the same window."""
    word = g.chance.choice(["EXISTS", "NOT EXISTS"])
    window = "SELECT * FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
    theirs = "SELECT *, epoch_ms(ts) - epoch_ms(ts) % 5000 AS window_start, epoch_ms(ts) - epoch_ms(ts) % 5000 + 5000 AS window_end FROM {}"
    text = (
        f"SELECT l.id AS id, l.v AS v FROM ({{}}) AS l WHERE {word} (SELECT 1 FROM ({{}}) AS r WHERE l.k = r.k "
        "AND l.window_start = r.window_start AND l.window_end = r.window_end)"
    )
    return Query(
        text.format(window.format("a"), window.format("b")),
        text.format(theirs.format("a"), theirs.format("b")),
        _integers("id", "v"),
    )


def old_window(g: Generator) -> Query:
    """A window of the older syntax."""
    flink = (
        "SELECT TUMBLE_START(ts, INTERVAL '5' SECOND) AS s, k, COUNT(*) AS n, SUM(v) AS total FROM a "
        "GROUP BY TUMBLE(ts, INTERVAL '5' SECOND), k"
    )
    ms = "epoch_ms(ts) - epoch_ms(ts) % 5000"
    duck = f"SELECT epoch_ms({ms}) AS s, k, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY {ms}, k"
    return Query(
        flink, duck, (Column("s", "TIMESTAMP(3)", "time"), Column("k", "STRING", "text"), *_integers("n", "total"))
    )


def over_changes(g: Generator) -> Query:
    """OVER on an updating table, which Flink cannot run."""
    call = g.chance.choice(["SUM(w)", "COUNT(*)", "MAX(w)", "MIN(w)"])
    frame = g.chance.choice(["3 PRECEDING", "UNBOUNDED PRECEDING"])
    text = f"SELECT id, {call} OVER (PARTITION BY k ORDER BY id ROWS BETWEEN {frame} AND CURRENT ROW) AS x FROM c"
    return Query(text, text, _integers("id", "x"), append=False)


def lag(g: Generator) -> Query:
    """The row before."""
    key, back = g.chance.choice(["k", "g"]), g.chance.choice([1, 3])
    text = f"SELECT id, LAG(id, {back}) OVER (PARTITION BY {key} ORDER BY ts) AS x FROM a"
    return Query(text, text, _integers("id", "x"))


def ordered_by_time(g: Generator) -> Query:
    """ORDER BY event time."""
    text = "SELECT id, v FROM a ORDER BY ts"
    return Query(text, text, _integers("id", "v"))


def limited(g: Generator) -> Query:
    """The first rows of all."""
    table, value = g.chance.choice([("a", "v"), ("c", "w")])
    text = f"SELECT id, {value} AS x FROM {table} ORDER BY {value} DESC{{}}, id LIMIT {g.chance.choice([1, 5, 40])}"
    return Query(text.format(""), text.format(" NULLS LAST"), _integers("id", "x"), append=False)


def with_values(g: Generator) -> Query:
    """A join with rows that stand in the text."""
    kind = g.chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    text = f"SELECT l.id AS id, r.n AS n FROM {{}} AS l {kind} (VALUES (0, 10), (1, 11), (1, 12), (77, 13)) AS r(g, n) ON l.{{}} = r.g"
    text = text.format(*g.chance.choice([("a", "g"), ("c", "w")]))
    return Query(text, text, _integers("id", "n"), append=False)


def several_joins(g: Generator) -> Query:
    """Three tables."""
    kinds = [g.chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN"]) for _ in range(2)]
    text = (
        f"SELECT l.id AS x, m.n AS y, r.id AS z FROM c AS l {kinds[0]} (SELECT k, g, COUNT(*) AS n FROM a WHERE g < 2 GROUP BY k, g) AS m "
        f"ON l.k = m.k {kinds[1]} (SELECT * FROM b WHERE w < 5) AS r ON l.k = r.k AND l.w > r.w"
    )
    return Query(text, text, _integers("x", "y", "z"), append=False)


def semi_of_aggregates(g: Generator) -> Query:
    """Rows whose partners come and go."""
    word = g.chance.choice(["IN", "NOT IN"])
    text = f"SELECT id, w FROM c WHERE w {word} (SELECT MOD(COUNT(*), 20) FROM a GROUP BY k, g)"
    return Query(text, text, _integers("id", "w"), append=False)


def ends_of_groups(g: Generator) -> Query:
    """Aggregates that keep values: of an updating table."""
    text = "SELECT MOD(id, 5) AS x, MIN(w) AS lo, MAX(w) AS hi, COUNT(DISTINCT w) AS d, SUM(DISTINCT w) AS s FROM c GROUP BY MOD(id, 5)"
    return Query(text, text, _integers("x", "lo", "hi", "d", "s"), append=False)


def rising(g: Generator) -> Query:
    """MATCH_RECOGNIZE: one run of rising values."""
    skip = g.chance.choice(["PAST LAST ROW", "TO NEXT ROW", "TO LAST C"])
    text = (
        f"SELECT k, a, b, n FROM A_TABLE MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, LAST(C.id) AS b, COUNT(B.id) AS n "
        f"ONE ROW PER MATCH AFTER MATCH SKIP {skip} PATTERN (A B{g.chance.choice(['+', '*', '{1,3}', '*?'])} C) "
        f"{g.chance.choice(['', 'WITHIN INTERVAL ' + chr(39) + '9' + chr(39) + ' SECOND '])}DEFINE B AS B.v > A.v, C AS C.v < A.v) AS m"
    ).replace("A_TABLE", "a")
    return Query(text, "", (Column("k", "STRING", "text"), *_integers("a", "b", "n")))


def falling(g: Generator) -> Query:
    """MATCH_RECOGNIZE: with aggregates over what was matched so far, over everything."""
    text = (
        "SELECT first_id, last_id, total FROM b MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(A.id) AS first_id, B.id AS last_id, "
        "SUM(A.w) AS total "
        "ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS SUM(A.w) < 100, B AS B.w > 5) AS m"
    )
    return Query(text, "", _integers("first_id", "last_id", "total"))


MORE: tuple[Shape, ...] = (
    random_queries.window_aggregate, random_queries.window_aggregate, grouping_sets, window_top, window_top, window_rows,
    windows_of_windows, window_semi_join, old_window, over_changes, lag, ordered_by_time, limited, with_values, several_joins,
    semi_of_aggregates, ends_of_groups, rising, falling,
)  # fmt: skip
SHAPES: tuple[Shape, ...] = (*(s for s in random_queries.SHAPES if s.__name__ != "_projection"), *MORE)


def _sides(g: Generator) -> tuple[str, str, str]:
    """(left rows, right rows, condition): two columns of one side must equal one of the other."""
    more = "(SELECT *, CASE WHEN MOD(id, 3) = 0 THEN 'k0' ELSE k END AS j FROM {})"
    if g.chance.random() < 0.5:
        return "a", more.format("b"), "l.k = r.k AND l.k = r.j"
    return more.format("a"), "b", "l.j = r.k AND l.k = r.k"


def _repeated_regular(g: Generator) -> Query:
    left, right, on = _sides(g)
    kind = g.chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    text = f"SELECT l.id AS l, r.id AS r FROM {left} AS l {kind} {right} AS r ON {on}"
    return Query(text, text, _integers("l", "r"), append=False)


def _repeated_semi(g: Generator) -> Query:
    left, right, on = _sides(g)
    word = g.chance.choice(["EXISTS", "NOT EXISTS"])
    text = f"SELECT l.id AS id FROM {left} AS l WHERE {word} (SELECT 1 FROM {right} AS r WHERE {on})"
    return Query(text, text, _integers("id"), append=False)


def _repeated_interval(g: Generator) -> Query:
    left, right, on = _sides(g)
    kind = g.chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    on += " AND r.ts BETWEEN l.ts - INTERVAL '5' SECOND AND l.ts + INTERVAL '5' SECOND"
    text = f"SELECT l.id AS l, r.id AS r FROM {left} AS l {kind} {right} AS r ON {on}"
    return Query(text, text, _integers("l", "r"))


def _repeated_window(g: Generator) -> Query:
    left, right, on = _sides(g)
    on += " AND l.window_start = r.window_start AND l.window_end = r.window_end"
    kind = g.chance.choice(["JOIN", "FULL JOIN", "EXISTS", "NOT EXISTS"])
    text = f"SELECT l.id AS l, r.id AS r FROM {{}} AS l {kind} {{}} AS r ON {on}"
    columns = _integers("l", "r")
    if "EXISTS" in kind:
        text = f"SELECT l.id AS l FROM {{}} AS l WHERE {kind} (SELECT 1 FROM {{}} AS r WHERE {on})"
        columns = _integers("l")
    call = "(SELECT * FROM TABLE(TUMBLE(TABLE VIEW_OF/*{}*/, DESCRIPTOR(ts), INTERVAL '5' SECOND)))"
    start = "epoch_ms(ts) - epoch_ms(ts) % 5000"
    theirs = f"(SELECT *, {start} AS window_start, {start} + 5000 AS window_end FROM {{}} AS t)"
    return Query(
        text.format(*(call.format(side) for side in (left, right))),
        text.format(*(theirs.format(side) for side in (left, right))),
        columns,
    )


def _repeated_temporal(g: Generator) -> Query:
    more = "SELECT *, CASE WHEN MOD(id, 3) = 0 THEN 'k0' ELSE k END AS j FROM b"
    newest = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k, j ORDER BY ts DESC) AS rn FROM ({more})"
    kind = g.chance.choice(["JOIN", "LEFT JOIN"])
    text = f"SELECT l.id AS l, r.id AS r FROM a AS l {{}}{kind} {{}} AS r ON l.k = r.k AND l.k = r.j"
    view = f"VIEW_OF/*(SELECT id, k, j, w, ts FROM ({newest}) WHERE rn = 1)*/ FOR SYSTEM_TIME AS OF l.ts"
    return Query(text.format("", view), text.format("ASOF ", f"({more})") + " AND l.ts >= r.ts", _integers("l", "r"))


def _over_by_columns(g: Generator) -> Query:
    """OVER over inserts in order of columns that are no time."""
    frame = g.chance.choice(["ROWS", "RANGE"])
    order = g.chance.choice(["v, id", "v DESC, id"] if frame == "ROWS" else ["v", "g DESC", "v DESC, g"])
    theirs = ", ".join(f"{o} NULLS {'LAST' if 'DESC' in o else 'FIRST'}" for o in order.split(", "))
    call = g.chance.choice(["SUM(v)", "COUNT(*)", "MAX(v)", "MIN(g)"])
    text = f"SELECT id, {call} OVER (PARTITION BY k ORDER BY {{}} {frame} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS x FROM a"
    return Query(text.format(order), text.format(theirs), _integers("id", "x"), append=False)


ADDED: tuple[Shape, ...] = (
    _repeated_regular, _repeated_semi, _repeated_interval, _repeated_window, _repeated_temporal, _over_by_columns,
)  # fmt: skip
"""Kinds that came later; they have seeds of their own, so that the others keep their queries."""
