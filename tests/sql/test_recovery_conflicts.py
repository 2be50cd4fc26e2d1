"""ON CONFLICT over random tables that are taken down in the middle: no row twice, none lost, and what is remembered is explained."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.end_to_end.running import json_rows
from tests.recovery.runs import left_of
from tests.slices import everyday
from tests.sql.random_tables import random_tables
from tests.sql.recovery_runs import Job, gated_tables

SINK = """CREATE TABLE result_sink (id BIGINT, k STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector'='filesystem', 'path'='{folder}/out', 'format'='debezium-json');
"""
QUERY = "SELECT {first}(id) AS id, k FROM a GROUP BY k"
BOTH = f"{QUERY.format(first='MIN')} UNION ALL {QUERY.format(first='MAX')}"
"""Rows of one id are equal, and change with every row that comes."""


@pytest.mark.parametrize("action", ["ERROR", "NOTHING"])
@pytest.mark.parametrize("seed", everyday(range(12), 6))
def test_goes_on_as_if_nothing_had_happened(seed: int, action: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    tables = random_tables(chance, 150)
    for table in tables:
        table.write(tmp_path)
    script = tmp_path / "script.sql"
    script.write_text(
        gated_tables(tables, tmp_path)
        + SINK.format(folder=tmp_path)
        + f"INSERT INTO result_sink {BOTH} ON CONFLICT DO {action};"
    )
    job = Job(script, tmp_path, {t.name: t.emitted for t in tables if t.name == "a"}, unaligned=seed % 3 == 0)
    assert job.interrupt(chance), "it came to its end"
    job.finish(chance.choice([1, 2, 3]))
    assert job.half_read()
    database = duckdb.connect()
    next(t for t in tables if t.name == "a").load(database)
    wanted: set[Any] = set(database.execute(BOTH).fetchall())
    assert left_of(json_rows(tmp_path / "out")) == Counter(_text(id_, k) for id_, k in wanted)


def _text(id_: int, k: str | None) -> str:
    return next(iter(left_of([{"before": None, "after": {"id": id_, "k": k}, "op": "c"}])))
