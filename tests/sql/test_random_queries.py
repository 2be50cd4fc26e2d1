"""Random queries over random data: the folded stream equals what DuckDB answers over the finished tables.

Parallelism and batch size are random too. Each seed is a case of its own; what a seed found gets a test that says what it was.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.slices import everyday
from tests.sql.random_queries import (
    Generator,
    Query,
    Shape,
    joined_by_branches,
    joined_by_commas,
    over_any_frame,
    script,
)
from tests.sql.random_tables import keyed, random_tables, stored_at_random

SEEDS = 200
SOAK_SEEDS = 4000
PLANNED_SEEDS = 12
KEYED_SEEDS = 25


@pytest.mark.parametrize("seed", everyday(range(SEEDS), 16, ci=3))
def test_the_stream_ends_with_what_a_database_answers(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEEDS, SOAK_SEEDS))
def test_more_of_them(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.parametrize("seed", range(PLANNED_SEEDS))
@pytest.mark.parametrize("shape", [joined_by_branches, joined_by_commas, over_any_frame], ids=lambda s: s.__name__)
def test_plans_that_were_rewritten_much_answer_as_well(shape: Shape, seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, shape)


@pytest.mark.parametrize("form", ["upserts", "duplicates"])
@pytest.mark.parametrize("seed", everyday(range(KEYED_SEEDS), 24, ci=2))
def test_upserts_and_repeated_changes_come_to_the_same(seed: int, form: str, tmp_path: Path) -> None:
    check(seed, tmp_path, form=form)


def check(seed: int, folder: Path, shape: Shape | None = None, form: str = "") -> None:
    """One seed: make tables and a query, of one shape if it is given, run both, compare."""
    asked = ask(seed, folder, shape, form)
    chance = asked.chance
    overrides = {
        "settings.parallelism": str(chance.choice([1, 2, 3])),
        "settings.batch_rows": str(chance.choice([1, 7, 64, 10_000])),
    }
    run_embedded(compile_pipeline(asked.pipeline, {}, overrides).job_graph)
    asked.check_answer(str(overrides))


@dataclass(frozen=True, slots=True)
class Asked:
    """A random query over random tables.

    Attributes:
        query: in both dialects.
        pipeline: the script with the query; its tables are beside it.
        output: the folder that it writes to.
        wanted: what a database answers.
        chance: for what else is random.
    """

    query: Query
    pipeline: Path
    output: Path
    wanted: Counter[tuple[Any, ...]]
    chance: random.Random

    def check_answer(self, settings: str) -> None:
        """What was written adds up to what is wanted; else `settings` are shown."""
        got = folded(self.output, self.query)
        extra, missing = got - self.wanted, self.wanted - got
        negative = {r: n for r, n in got.items() if n < 0}
        shown = f"{settings}\n{self.query.flink}\n{self.query.duck}"
        assert (extra, missing, negative) == (Counter(), Counter(), {}), shown


def ask(seed: int, folder: Path, shape: Shape | None = None, form: str = "") -> Asked:
    """Make tables and a query into a folder; with a form the changelog among the tables is keyed, and the query reads it."""
    chance = random.Random(seed)
    tables = stored_at_random(random_tables(chance), chance)
    generator = Generator(chance)
    query = generator.query() if shape is None else shape(generator)
    if form:
        while not re.search(r"\bc\b", query.flink):
            query = generator.query()
        tables = tuple(keyed(t, form, chance) if t.changes else t for t in tables)
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for table in tables:
        table.write(folder)
        table.load(database)
    output = folder / "out"
    sink = f"'connector'='filesystem', 'path'='{output}', 'format'='{'json' if query.append else 'debezium-json'}'"
    pipeline = folder / "query.sql"
    setting = "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n" if form == "duplicates" else ""
    pipeline.write_text(setting + script(query, "\n".join(t.ddl(folder) for t in tables), sink))
    wanted = Counter(tuple(map(plain, row)) for row in database.execute(query.duck).fetchall())
    return Asked(query, pipeline, output, wanted, chance)


def folded(folder: Path, query: Query) -> Counter[tuple[Any, ...]]:
    """The rows that the written changes add up to."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for file in sorted(folder.rglob("[!._]*")):
        for line in file.read_text().splitlines() if file.is_file() else ():
            change = json.loads(line, parse_float=Decimal)
            if query.append:
                rows[_row(change, query)] += 1
                continue
            if change["before"] is not None:
                rows[_row(change["before"], query)] -= 1
            if change["after"] is not None:
                rows[_row(change["after"], query)] += 1
    return Counter({row: count for row, count in rows.items() if count})


def _row(values: dict[str, Any], query: Query) -> tuple[Any, ...]:
    return tuple(
        dt.datetime.fromisoformat(values[c.name])
        if c.kind == "time" and values[c.name] is not None
        else plain(values[c.name])
        for c in query.columns
    )


def plain(value: Any) -> Any:
    """Numbers by value."""
    return Decimal(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else value
