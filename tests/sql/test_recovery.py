"""Random queries that are taken down in the middle of their input, once or twice, and go on at another parallelism: what was written
adds up to what DuckDB answers over the finished tables."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flowrun.api.changelog import ChangelogMode
from flowrun.api.operator import DescribesState
from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN
from flowrun.operators.state_meanings import state_meanings
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.nodes import PlanNode, WindowAggregate, walk_plan
from flowrun.plan.relational import WindowTableFunction
from flowrun.runners.compile import compile_pipeline
from tests.slices import everyday
from tests.sql.random_queries import Generator, Query, Shape, script
from tests.sql.random_tables import RandomTable, keyed, random_tables
from tests.sql.recovery_queries import ADDED, SHAPES
from tests.sql.recovery_runs import Job, gated_tables
from tests.sql.test_random_queries import folded, plain

SEEDS = (*range(36), 44, 50, 51, 52, 60, 85, 122, 230, 232)
UNALIGNED = 16
KEYED = 30_000  # seeds from this one on read upserts, or changes that come twice
KEYED_SEEDS = range(KEYED, KEYED + 10)
LATER = 20_000  # seeds from this one on have the kinds of queries that came later
ADDED_SEEDS = (*range(LATER, LATER + len(ADDED)), 20_011, 20_018)
SOAK_SEEDS = 1500
LEAST_ROWS = 120
FORMS = ("upserts", "duplicates")
OPERATORS = """
ChangelogNormalize of changes / Deduplicate / Expand / GroupAggregate / GroupAggregate of changes / IntervalJoin full /
IntervalJoin inner / IntervalJoin left /
Join anti / Join full / Join inner / Join left / Join of changes / Join right / Join semi / MatchRecognize / OverAggregate /
OverAggregate of changes / Rank / Rank of changes / TemporalJoin inner / TemporalJoin left / TemporalSort / Union / Union of changes /
Values / WindowAggregate CumulativeWindow / WindowAggregate SessionWindow / WindowAggregate SlidingWindow /
WindowAggregate TumblingWindow / WindowJoin anti / WindowJoin full / WindowJoin inner / WindowJoin left / WindowJoin semi / WindowRank /
WindowTableFunction SessionWindow / WindowTableFunction TumblingWindow
"""


@pytest.mark.parametrize("seed", everyday([*SEEDS, *ADDED_SEEDS, *KEYED_SEEDS], 16, ci=4))
def test_goes_on_as_if_nothing_had_happened(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, unaligned=False)


@pytest.mark.parametrize(
    "seed", everyday([*range(10_000, 10_000 + UNALIGNED), *range(KEYED + 10, KEYED + 14)], 16, ci=4)
)
def test_goes_on_with_rows_that_were_in_flight(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, unaligned=True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [*range(SOAK_SEEDS), *range(LATER, LATER + SOAK_SEEDS // 10)])
def test_more_of_them(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, unaligned=seed % 3 == 0)


def test_every_operator_is_among_them(tmp_path: Path) -> None:
    seen: set[str] = set()
    for seed in (*SEEDS, *KEYED_SEEDS):
        query, tables, _ = _case(seed, tmp_path)
        plan = compile_pipeline(_write(query, tables, tmp_path, unaligned=False), {}, {}).optimised
        modes = changelog_modes(plan)
        for node in walk_plan(plan):
            name = type(node).__name__
            seen |= {name, f"{name} {_variant(node)}"}
            if any(modes[id(i)] is not ChangelogMode.APPEND for i in node.inputs):
                seen.add(f"{name} of changes")
    missing = {name.strip() for name in OPERATORS.replace("\n", " ").split("/")} - seen
    assert not missing, "no seed has these: add some that do to SEEDS"


def test_what_operators_remember_is_explained(tmp_path: Path) -> None:
    unexplained = set()
    for seed in (*SEEDS, *ADDED_SEEDS, *KEYED_SEEDS):
        query, tables, _ = _case(seed, tmp_path)
        graph = compile_pipeline(_write(query, tables, tmp_path, unaligned=False), {}, {}).job_graph
        for factory in (o.factory for v in graph.vertices for o in v.operators):
            if not isinstance(factory, DescribesState):
                continue
            meanings = state_meanings(factory)
            for table, schema in factory.state_schemas().items():
                own = {n for n in schema.names if n.startswith("__")} - {KEY_GROUP_COLUMN, DELETED_COLUMN}
                unexplained |= {(type(factory).__name__, table, n) for n in own - meanings.get(table, {}).keys()}
    assert not unexplained


def _variant(node: PlanNode) -> str:
    if isinstance(node, WindowAggregate | WindowTableFunction):
        return type(node.window).__name__
    return str(getattr(getattr(node, "kind", None), "name", "")).lower()


def _case(seed: int, folder: Path, shape: Shape | None = None) -> tuple[Query, Sequence[RandomTable], random.Random]:
    chance = random.Random(seed)
    tables = random_tables(chance, LEAST_ROWS)
    shapes = ADDED if LATER <= seed < KEYED else SHAPES
    generator = Generator(chance)
    query = (shape or shapes[seed % len(shapes)])(generator)
    if seed >= KEYED:
        while not re.search(r"\bc\b", query.flink):
            query = generator.query()
        tables = tuple(keyed(t, FORMS[seed % 2], chance) if t.changes else t for t in tables)
    for table in tables:
        table.write(folder)
    return query, tables, chance


def check(seed: int, folder: Path, *, unaligned: bool, shape: Shape | None = None) -> None:
    """One seed: make tables and a query, of a shape if one is given, run it in several lives, compare."""
    query, tables, chance = _case(seed, folder, shape)
    job = Job(_write(query, tables, folder, unaligned), folder, {t.name: t.emitted for t in tables}, unaligned)
    lives = chance.choice([1, 1, 2])
    while lives and job.interrupt(chance):
        lives -= 1
    if not lives:
        job.finish(chance.choice([1, 2, 3]))
        assert job.half_read(), f"{job.read}\n{query.flink}"
    got, wanted = folded(folder / "out", query), _answer(query, tables, folder)
    extra, missing = got - wanted, wanted - got
    negative = {r: n for r, n in got.items() if n < 0}
    assert (extra, missing, negative) == (Counter(), Counter(), {}), "\n".join([*job.log, query.flink, query.duck])


def _write(query: Query, tables: Sequence[RandomTable], folder: Path, unaligned: bool) -> Path:
    form = "json" if query.append else "debezium-json"
    text = script(
        query, gated_tables(tables, folder), f"'connector'='filesystem', 'path'='{folder}/out', 'format'='{form}'"
    )
    if any(t.keyed == "duplicates" for t in tables):
        text = "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n" + text
    if unaligned:
        first = query.columns[0].name
        text = text.replace("INSERT INTO result_sink\n", "CREATE VIEW results AS ")
        text += f"INSERT INTO result_sink SELECT * FROM results WHERE gate_results(`{first}`);\n"
    path = folder / "query.sql"
    path.write_text(text)
    return path


def _answer(query: Query, tables: Sequence[RandomTable], folder: Path) -> Counter[tuple[Any, ...]]:
    """What DuckDB answers; of a query that it does not know, what a run to the end does."""
    if not query.duck:
        whole = folder / "whole"
        whole.mkdir()
        file = whole / "query.sql"
        file.write_text((folder / "query.sql").read_text().replace(f"{folder}/out", f"{whole}/out"))
        Job(file, whole, {}).finish(2)
        rows = folded(whole / "out", query)
        assert rows, "the reference run found nothing"
        return rows
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for table in tables:
        table.load(database)
    return Counter(tuple(map(plain, row)) for row in database.execute(query.duck).fetchall())
