"""A time attribute may be NULL behind an outer join; where rows go by it, one message names the row."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import JobFailedError
from tests.end_to_end.running import run_file

TABLES = """
CREATE TABLE o (u INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'o.csv');
CREATE TABLE y (u INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'y.csv');
CREATE VIEW j AS SELECT o.u AS u, o.ts AS wt, y.v AS n FROM o RIGHT JOIN y
  ON o.u = y.u AND y.ts BETWEEN o.ts - INTERVAL '3' SECOND AND o.ts + INTERVAL '3' SECOND;
"""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT u, SUM(n) OVER (PARTITION BY u ORDER BY wt) AS s FROM j",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY u ORDER BY wt) AS rn FROM j) WHERE rn = 1",
        "SELECT * FROM j ORDER BY wt",
        "SELECT COUNT(*) AS c FROM j GROUP BY TUMBLE(wt, INTERVAL '1' MINUTE)",
    ],
)
def test_rows_without_time_are_named(query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "o.csv").write_text("1,2024-01-01 00:00:00\n")
    (tmp_path / "y.csv").write_text("1,5,2024-01-01 00:00:01\n2,7,2024-01-01 00:00:05\n")
    script = tmp_path / "script.sql"
    script.write_text(TABLES + query + ";")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobFailedError, match="the time attribute 'wt' must not be NULL, but it is in row 0") as raised:
        run_file(script)
    assert raised.value.hint == "drop such rows before: WHERE wt IS NOT NULL"
