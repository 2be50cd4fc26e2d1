"""LISTAGG … WITHIN GROUP and ARRAY_AGG(… ORDER BY …) over inserts, changes, windows and OVER end with what DuckDB answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql import random_queries, test_random_queries, test_recovery
from tests.sql.random_queries import Generator, Query
from tests.sql.random_tables import Column

TEXTS = (Column("x", "STRING", "text"), Column("y", "STRING", "text"), Column("n", "BIGINT", "int"))


def ordered(g: Generator) -> Query:
    """Groups of a table, of a window, or OVER."""
    down, nulls = g.chance.choice(["", " DESC"]), g.chance.choice(["FIRST", "LAST"])
    table, value = g.chance.choice([("a", "v"), ("b", "w"), ("c", "w")])
    order = f"ORDER BY {value}{down} NULLS {nulls}, id"
    filtered = g.chance.choice(["", f" FILTER (WHERE {value} > 5)"])
    flink = (
        f"LISTAGG(k, ';') WITHIN GROUP ({order}){filtered} AS x, ARRAY_JOIN(ARRAY_AGG(CAST(id AS STRING) {order}), ',') AS y, "
        "APPROX_COUNT_DISTINCT(k) AS n"
    )
    duck = f"STRING_AGG(k, ';' {order}){filtered} AS x, STRING_AGG(CAST(id AS VARCHAR), ',' {order}) AS y, COUNT(DISTINCT k) AS n"
    if table != "c" and g.chance.random() < 0.4:
        bounds, theirs, _ = g.windows({"a": random_queries.A, "b": random_queries.B}[table])
        text = "SELECT {} FROM ({}) AS w GROUP BY window_start, window_end"
        if "SESSION" not in bounds:
            return Query(text.format(flink, bounds), text.format(duck, theirs), TEXTS)
    key = g.chance.choice(["MOD(id, 3)", "k"])
    return Query(
        f"SELECT {flink} FROM {table} GROUP BY {key}", f"SELECT {duck} FROM {table} GROUP BY {key}", TEXTS, append=False
    )


def distinct(g: Generator) -> Query:
    """DISTINCT, ordered by the value itself."""
    order = g.chance.choice(["ORDER BY k", "ORDER BY k DESC"])
    flink = f"LISTAGG(DISTINCT k) WITHIN GROUP ({order}) AS x, CAST(NULL AS STRING) AS y, COUNT(*) AS n"
    duck = f"STRING_AGG(DISTINCT k, ',' {order}) AS x, NULL AS y, COUNT(*) AS n"
    text = "SELECT {} FROM c GROUP BY MOD(w, 4)"
    return Query(text.format(flink), text.format(duck), TEXTS, append=False)


def over(g: Generator) -> Query:
    """OVER: what each row has before it, in another order."""
    order = g.chance.choice(["v DESC", "v"])
    text = "SELECT {} AS x, CAST(NULL AS {}) AS y, id AS n FROM a"
    bounds = "OVER (PARTITION BY g ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)"
    flink = text.format(f"ARRAY_JOIN(ARRAY_AGG(CAST(id AS STRING) ORDER BY {order}, id) {bounds}, ',')", "STRING")
    nulls = "NULLS LAST" if order == "v DESC" else "NULLS FIRST"
    duck = text.format(f"STRING_AGG(CAST(id AS VARCHAR), ',' ORDER BY {order} {nulls}, id) {bounds}", "VARCHAR")
    return Query(flink, duck, TEXTS)


SHAPES = (ordered, ordered, distinct, over)


@pytest.mark.parametrize("seed", range(16))
def test_the_stream_ends_with_what_a_database_answers(seed: int, tmp_path: Path) -> None:
    test_random_queries.check(seed, tmp_path, SHAPES[seed % len(SHAPES)])


@pytest.mark.parametrize("seed", range(6))
def test_goes_on_from_a_checkpoint_at_another_parallelism(seed: int, tmp_path: Path) -> None:
    test_recovery.check(seed, tmp_path, unaligned=False, shape=SHAPES[seed % len(SHAPES)])
