"""ON CONFLICT over random tables that are taken down in the middle: no row twice, none lost, and what is remembered is explained."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flowrun.errors import JobFailedError
from tests.end_to_end.running import json_rows
from tests.recovery.runs import left_of
from tests.slices import everyday
from tests.sql.random_tables import random_tables
from tests.sql.recovery_gates import FUNCTIONS, GATES, RESULTS
from tests.sql.recovery_runs import TIMEOUT_MS, Job, gated_tables

SINK = """CREATE TABLE result_sink (id BIGINT, k STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector'='filesystem', 'path'='{folder}/out', 'format'='debezium-json');
"""
QUERY = "SELECT {first}(id) AS id, k FROM a GROUP BY k"
BOTH = f"{QUERY.format(first='MIN')} UNION ALL {QUERY.format(first='MAX')}"
"""Rows of one id are equal, and change with every row that comes."""


@pytest.mark.parametrize("action", ["ERROR", "NOTHING"])
@pytest.mark.parametrize("seed", everyday(range(12), 6, ci=2))
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


GATED = f"""{FUNCTIONS}
CREATE TABLE a_rows (id BIGINT, k STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector'='filesystem',
  'path'='{{folder}}/a.json', 'format'='json', 'scan.watermark.emit.strategy'='on-event');
CREATE VIEW a AS SELECT * FROM a_rows WHERE gate_a(id);
SET 'restart-strategy.type' = 'fixed-delay';
SET 'restart-strategy.fixed-delay.attempts' = '10';
SET 'restart-strategy.fixed-delay.delay' = '10 ms';
"""


def test_a_conflict_after_a_checkpoint_leaves_what_that_committed(tmp_path: Path) -> None:
    rows = [
        {"id": i % 300, "k": f"k{i}", "at": f"2024-01-01 00:{i // 60:02}:{i % 60:02}"} for i in range(302)
    ]  # 0 and 1 come again
    (tmp_path / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = tmp_path / "script.sql"
    insert = "INSERT INTO result_sink SELECT id, k FROM a ON CONFLICT DO ERROR;"
    script.write_text(GATED.format(folder=tmp_path) + SINK.format(folder=tmp_path) + insert)
    job = Job(script, tmp_path, {"a": len(rows)})
    for gate in (*GATES.values(), RESULTS):
        gate.open()
    GATES["a"].close_after(6)
    conflict = pytest.raises(JobFailedError, match="2 different rows for the primary key")
    with conflict as failure, job._start(2, 1) as running:
        assert job._waits(running)
        ticket = running.take_snapshot(None, savepoint=False, stop=False)
        job._until_under_way(running, ticket)
        GATES["a"].drip()
        ticket.wait(TIMEOUT_MS)
        GATES["a"].open()
        running.wait(TIMEOUT_MS)
    assert "{id: 0, k: 'k0'}, {id: 0, k: 'k300'}" in failure.value.message
    assert "not restarted: this happened 3 times at the same place without progress" in failure.value.__notes__
    committed = {row["after"]["id"] for row in json_rows(tmp_path / "out")}  # type: ignore[index]
    assert committed
    assert committed == set(range(len(committed)))
    assert len(committed) < 100, "what came after the checkpoint is not there"
