"""No rule changes a row: random queries give the same with no rule, with each one alone, and with all.

First by an interpreter of plans, row set by row set, which sees queries as they are bound; then as jobs, whose plans have the special
nodes that recognition makes.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.core.schema import Field, Schema
from flowrun.core.type_parser import parse_type
from flowrun.frontend.pipeline import load_pipeline
from flowrun.frontend.sql.catalog import Catalog, CatalogTable
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan.explain import plan_text
from flowrun.plan.nodes import NodeHints, Plan, Settings, Sink, TableReference
from flowrun.plan.rewrites import RULES, Rule, optimise
from flowrun.runners.embedded import run_embedded
from tests.frontend.sql.queries.binding import bind
from tests.frontend.sql.queries.interpreter import Interpreter, comparable
from tests.slices import everyday
from tests.sql import random_queries
from tests.sql.random_queries import Generator, Query, script
from tests.sql.random_tables import RandomTable, random_tables, stored_at_random
from tests.sql.test_random_queries import folded

GENERAL = [
    s
    for s in random_queries.SHAPES
    if s.__name__
    in ("_projection", "_aggregate", "_distinct", "_union", "_join", "_subquery", "_aggregate_of_join", "_limit")
]
SPLIT = Settings(split_distinct=True, split_distinct_buckets=3)


def catalog_of(tables: tuple[RandomTable, ...]) -> Catalog:
    """The tables as a catalog of tables in memory."""
    known = Catalog()
    for table in tables:
        schema = Schema(tuple(Field(c.name, parse_type(c.type)) for c in table.columns))
        known.relations[table.name] = CatalogTable(table.name, schema, schema, TableReference(table.name, "memory", {}))
    return known


def arrow_of(table: RandomTable) -> pa.Table:
    """The content of a table; few enough rows for joins of every row with every other."""
    schema = pa.schema([(c.name, parse_type(c.type).arrow) for c in table.columns])
    return pa.Table.from_pylist([{c.name: r[c.name] for c in table.columns} for r in table.rows[:25]], schema=schema)


@pytest.mark.parametrize("seed", range(40))
def test_rules_keep_what_a_bound_query_means(seed: int) -> None:
    chance = random.Random(seed)
    tables = random_tables(chance)
    query = chance.choice(GENERAL)(Generator(chance))
    node = bind(query.flink, catalog_of(tables)).node
    sink = Sink(node.schema, NodeHints(name="out"), node, TableReference("out", "blackhole", {}))
    plan = Plan("random", (sink,), SPLIT)
    data = {t.name: arrow_of(t) for t in tables}

    def rows(after: Plan) -> list[Any]:
        return comparable(Interpreter(data).rows(after.sinks[0].input))

    expected = rows(plan)
    for rules in [*((r,) for r in dict.fromkeys(RULES)), RULES]:
        after = optimise(plan, rules)
        names = ", ".join(r.__name__ for r in rules)
        assert rows(after) == expected, f"{names}\n{query.flink}\n{plan_text(plan)}\n{plan_text(after)}"


def job_rows(
    script_path: Path, out: Path, query: Query, rules: tuple[Rule, ...], chance: random.Random
) -> Counter[Any]:
    """What the changes add up to that a job writes whose plan went through `rules`."""
    overrides = {
        "settings.parallelism": str(chance.choice([1, 2])),
        "settings.batch_rows": str(chance.choice([7, 64, 10_000])),
        "settings.split_distinct": "true",
    }
    plan = optimise(load_pipeline(script_path, {"OUT": str(out)}, overrides).plan, rules)
    graph = build_stream_graph(plan.name, lower(plan), graph_settings(plan.settings))
    run_embedded(build_job_graph(graph))
    return folded(out, query)


@pytest.mark.parametrize("seed", everyday(range(16), 2))
def test_rules_keep_what_a_job_writes(seed: int, tmp_path: Path) -> None:
    chance = random.Random(1_000 + seed)
    tables = stored_at_random(random_tables(chance), chance)
    query = Generator(chance).query()
    for table in tables:
        table.write(tmp_path)
    form = "json" if query.append else "debezium-json"
    path = tmp_path / "query.sql"
    ddl = "\n".join(t.ddl(tmp_path) for t in tables)
    path.write_text(script(query, ddl, f"'connector'='filesystem', 'path'='${{OUT}}', 'format'='{form}'"))
    alone = chance.choice(list(dict.fromkeys(RULES)))
    results = [
        job_rows(path, tmp_path / f"out{i}", query, rules, chance) for i, rules in enumerate([(), (alone,), RULES])
    ]
    assert results[1] == results[0], f"{alone.__name__}\n{query.flink}"
    assert results[2] == results[0], query.flink
