"""Queries of very many aggregates: the work grows with their number, not with its square."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pytest

from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.end_to_end.running import json_rows
from tests.slices import everyday

TABLES = """
CREATE TABLE t (a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{folder}/in.csv');
CREATE TABLE r ({columns}) WITH ('connector' = 'filesystem', 'format' = 'debezium-json', 'path' = '{folder}/out');
INSERT INTO r SELECT {sums} FROM {rows};
"""


def compiled(folder: Path, count: int, rows: str = "(SELECT * FROM t)") -> CompiledPipeline:
    """Sums of `count` expressions over one row."""
    (folder / "in.csv").write_text("1,2\n")
    columns = ", ".join(f"s{i} BIGINT" for i in range(count))
    sums = ", ".join(f"SUM({'a' if i % 2 else 'b'} + {i})" for i in range(count))
    path = folder / "s.sql"
    path.write_text(TABLES.format(folder=folder, columns=columns, sums=sums, rows=rows))
    return compile_pipeline(path, {}, {})


WINDOW = "TABLE(TUMBLE(TABLE (SELECT *, PROCTIME() AS at FROM t), DESCRIPTOR(at), INTERVAL '1' DAY)) GROUP BY window_start, window_end"


@pytest.mark.parametrize("rows", everyday([WINDOW, "t"], 2), ids=["window", "table"])
@pytest.mark.exhaustive
def test_1999_sums_over_one_row_are_right(rows: str, tmp_path: Path) -> None:
    run_embedded(compiled(tmp_path, 1999, rows).job_graph)
    (row,) = json_rows(tmp_path / "out")
    assert row["after"] == {f"s{i}": i + (1 if i % 2 else 2) for i in range(1999)}


def test_planning_twice_as_many_takes_twice_as_many_calls(tmp_path: Path) -> None:
    def calls(count: int) -> int:
        profile = cProfile.Profile()
        profile.runcall(lambda: compiled(tmp_path, count).job_graph)
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    calls(10)  # imports what is needed
    few, many = calls(300), calls(600)
    assert many < 2.2 * few
    assert many < 600 * 5000
