"""Random queries whose subqueries read the rows around them, in every place and of every form."""

from __future__ import annotations

from tests.sql.random_queries import Generator, Query, Shape
from tests.sql.random_tables import Column

VALUES = {"a": ("g", "v"), "b": ("g", "w"), "c": ("w", "w")}
"""Integer columns of the tables: one of few values, and another."""


class Names:
    """Two or three tables, columns of theirs and operators."""

    def __init__(self, g: Generator) -> None:
        pick = g.chance.choice
        self.outer, self.inner, self.third = pick("abc"), pick("abc"), pick("abc")
        self.op = pick(["<>", "<", "<=", ">", ">="])
        self.other_op = pick(["<>", "<", ">="])
        self.join = pick(["LEFT", "RIGHT", "FULL"])
        self.mine, self.more = VALUES[self.outer]
        self.its, self.its_more = VALUES[self.inner]
        self.third_value = VALUES[self.third][0]
        self.quantifier = pick(["ALL", "ANY"])
        self.negation = pick(["", "NOT "])
        self.call = pick(["COUNT(*)", "COUNT(i.{0})", "MAX(i.{0})", "SUM(i.{0})", "COUNT(DISTINCT i.k)"]).format(
            self.its_more
        )


def _query(text: str, *columns: str) -> Query:
    """The same text for both engines."""
    kinds = tuple(Column(c, "BIGINT", "int") for c in columns)
    return Query(text, text, kinds, append=False)


def _truth(condition: str) -> str:
    return f"CASE WHEN {condition} THEN 1 WHEN NOT ({condition}) THEN 0 END"


def scalar(g: Generator) -> Query:
    """An aggregate of the rows that are not equal."""
    n = Names(g)
    text = (
        f"SELECT o.id AS id, CAST((SELECT {n.call} FROM {n.inner} AS i WHERE i.{n.its} {n.op} o.{n.mine} AND i.id < 40) AS BIGINT) AS x "
        f"FROM {n.outer} AS o"
    )
    return _query(text, "id", "x")


def exists(g: Generator) -> Query:
    """EXISTS as a value, by an equality and another comparison."""
    n = Names(g)
    inner = f"EXISTS (SELECT 1 FROM {n.inner} AS i WHERE i.k = o.k AND i.{n.its_more} {n.op} o.{n.more})"
    return _query(f"SELECT o.id AS id FROM {n.outer} AS o WHERE {n.negation}{inner} OR o.id < 3", "id")


def membership(g: Generator) -> Query:
    """IN with three-valued logic, of one value or two."""
    n = Names(g)
    if g.chance.random() < 0.5:
        condition = f"o.{n.more} {n.negation}IN (SELECT i.{n.its_more} FROM {n.inner} AS i WHERE i.{n.its} {n.op} o.{n.mine} AND i.id < 9)"
    else:
        condition = f"(o.k, o.{n.mine}) {n.negation}IN (SELECT i.k, i.{n.its} FROM {n.inner} AS i WHERE i.id < 9)"
    return _query(f"SELECT o.id AS id, {_truth(condition)} AS x FROM {n.outer} AS o", "id", "x")


def quantified(g: Generator) -> Query:
    """ALL and ANY."""
    n = Names(g)
    correlation = g.chance.choice(["i.k = o.k", f"i.{n.its} {n.other_op} o.{n.mine}", "TRUE", f"i.{n.its_more} > 90"])
    condition = f"o.{n.more} {n.op} {n.quantifier} (SELECT i.{n.its_more} FROM {n.inner} AS i WHERE {correlation} AND i.id < 30)"
    return _query(f"SELECT o.id AS id, {_truth(condition)} AS x FROM {n.outer} AS o", "id", "x")


def derived(g: Generator) -> Query:
    """Inside a derived table, below another aggregate."""
    n = Names(g)
    inner = f"SELECT COUNT(*) AS n FROM {n.inner} AS i WHERE i.{n.its} {n.op} o.{n.mine} GROUP BY i.k"
    return _query(f"SELECT o.id AS id, (SELECT MAX(d.n) FROM ({inner}) AS d) AS x FROM {n.outer} AS o", "id", "x")


def counted(g: Generator) -> Query:
    """A count of none is 0, also where another aggregate reads it."""
    n = Names(g)
    inner = f"SELECT COUNT(*) AS n FROM {n.inner} AS i WHERE i.k = o.k AND i.{n.its} {n.op} 2"
    return _query(f"SELECT o.id AS id, (SELECT SUM(d.n + 1) FROM ({inner}) AS d) AS x FROM {n.outer} AS o", "id", "x")


def two_levels(g: Generator) -> Query:
    """The innermost query reads the outermost one."""
    n = Names(g)
    innermost = f"SELECT 1 FROM {n.third} AS j WHERE j.{n.third_value} {n.op} o.{n.mine} AND j.id = i.id"
    inner = f"SELECT 1 FROM {n.inner} AS i WHERE i.k = o.k AND EXISTS ({innermost})"
    return _query(f"SELECT o.id AS id FROM {n.outer} AS o WHERE {n.negation}EXISTS ({inner})", "id")


def in_on(g: Generator) -> Query:
    """In ON of an outer join, reading both sides, one, or none."""
    n = Names(g)
    correlation = g.chance.choice(
        [
            f"j.{n.third_value} = l.{n.mine} AND j.id {n.op} r.id",
            f"j.{n.third_value} = r.{n.its}",
            "j.id = l.id",
            "TRUE",
        ]
    )
    on = f"l.k = r.k AND {n.negation}EXISTS (SELECT 1 FROM {n.third} AS j WHERE {correlation} AND j.id < 20)"
    sides = f"(SELECT * FROM {n.outer} WHERE id < 30) AS l {n.join} JOIN (SELECT * FROM {n.inner} WHERE id < 20) AS r"
    return _query(f"SELECT l.id AS x, r.id AS y FROM {sides} ON {on}", "x", "y")


def in_union(g: Generator) -> Query:
    """In both members of a set operation."""
    n = Names(g)
    word = g.chance.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
    members = (
        f"SELECT i.{n.its} AS x FROM {n.inner} AS i WHERE i.k = o.k {word} "
        f"SELECT j.{n.third_value} AS x FROM {n.third} AS j WHERE j.id {n.op} o.id AND j.id < 20"
    )
    return _query(f"SELECT o.id AS id, (SELECT COUNT(*) FROM ({members}) AS u) AS n FROM {n.outer} AS o", "id", "n")


def lateral(g: Generator) -> Query:
    """LATERAL, with the first rows of each."""
    n = Names(g)
    inner = f"SELECT i.id AS j FROM {n.inner} AS i WHERE i.{n.its} {n.op} o.{n.mine} ORDER BY i.id DESC LIMIT 2"
    return _query(
        f"SELECT o.id AS id, x.j AS j FROM {n.outer} AS o LEFT JOIN LATERAL ({inner}) AS x ON TRUE", "id", "j"
    )


SHAPES: tuple[Shape, ...] = (
    scalar, exists, membership, quantified, derived, counted, two_levels, in_on, in_union, lateral, quantified, membership,
)  # fmt: skip
