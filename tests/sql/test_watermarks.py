"""Watermarks of SQL tables: what waits for them comes as soon as the declared value allows, and which rows are late."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import flowrun
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import start_embedded
from tests.end_to_end.running import json_rows, run_file

_arrived: list[int] = []
_changed = threading.Condition()

SCRIPT = """
SET 'flowrun.functions' = 'tests';
CREATE FUNCTION arrive AS 'tests.sql.test_watermarks.arrive' LANGUAGE PYTHON;
CREATE TABLE a (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS {watermark})
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{folder}/in'{options});
CREATE TABLE r (id INT, n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}/out');
INSERT INTO r SELECT arrive(id), n FROM (SELECT id, COUNT(*) OVER (ORDER BY ts) AS n FROM a);
"""


@flowrun.udf(result="INT", arguments=["INT"], vectorised=True, deterministic=False)
def arrive(column: pa.Array) -> pa.Array:
    """The values, which have come out of OVER now."""
    with _changed:
        _arrived.extend(column.to_pylist())
        _changed.notify_all()
    return column


def script(folder: Path, rows: str, watermark: str = "ts", options: str = "") -> Path:
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text(rows)
    path = folder / "script.sql"
    path.write_text(SCRIPT.format(folder=folder, watermark=watermark, options=options))
    return path


@pytest.mark.parametrize("watermark", ["ts", "TIMESTAMPADD(SECOND, 0, ts)", "ts - INTERVAL '0.001' SECOND"])
def test_over_sends_what_the_watermark_allows_when_no_more_rows_come(watermark: str, tmp_path: Path) -> None:
    rows = (
        "1,2024-01-01 00:00:01.000\n2,2024-01-01 00:00:01.999\n3,2024-01-01 00:00:02.000\n4,2024-01-01 00:00:02.000\n"
    )
    path = script(tmp_path, rows, watermark, ", 'source.monitor-interval' = '1 h'")
    path.write_text("SET 'pipeline.auto-watermark-interval' = '5 ms';\n" + path.read_text())
    wanted = [1, 2, 3, 4] if "0.001" not in watermark else [1, 2]
    _arrived.clear()
    with start_embedded(compile_pipeline(path).job_graph) as job:
        with _changed:
            assert _changed.wait_for(lambda: len(_arrived) >= len(wanted), timeout=30)
        job.cancel()
    assert _arrived == wanted


ROWS = "".join(f"{i},2024-01-01 00:00:{second:02d}\n" for i, second in enumerate([10, 10, 9, 12, 12, 11, 10, 20, 20]))


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rows_of_equal_time_are_late_on_event_only(batch_rows: int, tmp_path: Path) -> None:
    for strategy, wanted in (("on-periodic", {0, 1, 3, 4, 7, 8}), ("on-event", {0, 3, 7})):
        folder = tmp_path / strategy
        folder.mkdir()
        path = script(folder, ROWS, options=f", 'scan.watermark.emit.strategy' = '{strategy}'")
        run_file(path, batch_rows=batch_rows)
        assert {row["id"] for row in json_rows(folder / "out")} == wanted, strategy
