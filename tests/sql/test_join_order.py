"""Chains of inner joins in whatever order sizes ask for: the answer is what DuckDB answers, in the written order and in any other.

The sizes are made up, so that joins move that would stay for the few rows that there are.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.plan.explain import plan_text
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.slices import everyday, in_ci
from tests.sql.random_queries import A, B, Generator, Query
from tests.sql.random_tables import Column
from tests.sql.test_random_queries import Asked, ask

SEEDS = 60
MOST = 5
"""Tables of a query. Each is one of its own, so that each has a size of its own."""


@pytest.mark.parametrize("seed", everyday(range(SEEDS), 16, ci=4))
def test_joins_answer_the_same_in_any_order(seed: int, tmp_path: Path) -> None:
    asked = ask(seed, tmp_path, chained)
    for number, sizes in enumerate([{}, *different_orders(asked)]):
        output = tmp_path / str(number)
        run_embedded(compiled(asked, output, sizes).job_graph)
        replace(asked, output=output).check_answer(str(sizes))


@pytest.mark.parametrize(("seeds", "least"), in_ci([(6, 1), (16, 6)], 2))
@pytest.mark.exhaustive
def test_many_of_them_move(seeds: int, least: int, tmp_path: Path) -> None:
    """Else the test above compares nothing."""
    moved = 0
    for seed in range(seeds):
        folder = tmp_path / str(seed)
        folder.mkdir()
        moved += bool(different_orders(ask(seed, folder, chained)))
    assert moved >= least


def different_orders(asked: Asked) -> list[dict[str, int]]:
    """Sizes by which the joins run in up to two orders that are not the written one."""
    found: dict[str, dict[str, int]] = {order(asked, {}): {}}
    for _ in range(15):
        sizes = {f"{name}_{i}": 10 ** asked.chance.randrange(7) for name in "ab" for i in range(MOST)}
        found.setdefault(order(asked, sizes), sizes)
    return list(found.values())[1:3]


def order(asked: Asked, sizes: dict[str, int]) -> str:
    """The plan as text, which tells orders from each other."""
    return plan_text(compiled(asked, asked.output, sizes).optimised)


def compiled(asked: Asked, output: Path, sizes: dict[str, int]) -> CompiledPipeline:
    """The pipeline, writing to a folder, for tables of these sizes."""
    pipeline = asked.pipeline.with_name(f"{output.name}.sql")
    text = asked.pipeline.read_text().replace(f"'{asked.output}'", f"'{output}'")
    tables = "".join(f"CREATE TABLE {t}_{i} LIKE {t};\n" for t in "ab" for i in range(MOST))
    pipeline.write_text(re.sub(r"(?=INSERT INTO)", tables, text, count=1))
    return compile_pipeline(pipeline, {}, {"settings.parallelism": "2"}, sizes)


def chained(g: Generator) -> Query:
    """Three to five tables joined in a row: by columns and by what is computed of them, some of them filtered, in derived tables, or with
    conditions besides; perhaps an outer join among them.
    """
    count = g.chance.choice([3, 3, 4, 5])
    joined = _table(g, 0)
    names = ["t0"]
    for place in range(1, count):
        name, other = f"t{place}", g.chance.choice(names)
        kind = g.chance.choice(["JOIN"] * 9 + ["LEFT JOIN"])
        conditions = [_equality(g, other, name)]
        if g.chance.random() < 0.3:
            conditions.append(_equality(g, g.chance.choice(names), name))
        if g.chance.random() < 0.3:
            conditions.append(f"{other}.v {g.chance.choice(['<', '<=', '<>'])} {name}.v")
        g.chance.shuffle(conditions)
        joined += f" {kind} {_table(g, place)} ON {' AND '.join(conditions)}"
        names.append(name)
        if place == 2 and g.chance.random() < 0.2:  # what was joined so far, with a computed column, as a table
            listed = ", ".join(f"{n}.{c} AS {n}_{c}" for n in names for c in ("id", "v"))
            inner = f"SELECT {listed}, {other}.k AS k, t0.v + 1 AS v, t0.id AS id, t0.g AS g FROM {joined}"
            joined, names = f"({inner}) AS u", ["u"]
    where = f" WHERE {g.chance.choice(names)}.v {g.chance.choice(['< 30', '= 7', 'IS NOT NULL'])}"
    listed = ", ".join(f"{n}.id AS x{i}, {n}.k AS y{i}" for i, n in enumerate(names))
    text = f"SELECT {listed} FROM {joined}{where if g.chance.random() < 0.5 else ''}"
    columns = [
        c for i in range(len(names)) for c in (Column(f"x{i}", "BIGINT", "int"), Column(f"y{i}", "STRING", "text"))
    ]
    return Query(re.sub(r"@(\d)", r"_\1", text), re.sub(r"@\d", "", text), tuple(columns), append=False)


def _table(g: Generator, place: int) -> str:
    base = g.chance.choice([A, B])
    value = "v" if base is A else "w"
    conditions = ["id < 60", *(g.chance.choice([["g = 2"], ["k = 'k1'"], ["id IN (3, 5, 8)"], [], []]))]
    rows = f"SELECT id, k, g, {value} AS v FROM {base.flink[14:]}@{place} WHERE {' AND '.join(conditions)}"
    return f"({rows}) AS t{place}"


def _equality(g: Generator, left: str, right: str) -> str:
    return g.chance.choice(
        [
            f"{left}.id = {right}.id", f"{left}.id = {right}.id", f"{left}.id = {right}.v", f"{right}.id = {left}.v",
            f"{left}.k = {right}.k AND {left}.g = {right}.g", f"CHAR_LENGTH({left}.k) + {left}.id = {right}.id",
            f"{left}.v IS NOT DISTINCT FROM {right}.id", f"UPPER({left}.k) = UPPER({right}.k) AND {left}.id = {right}.id",
        ]
    )  # fmt: skip
