"""Two versions over the same rows, from the state of a job that runs: what differs is told, and no real sink is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.core.clock import SystemClock
from flowrun.errors import JobFailedError, PipelineError
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded
from flowrun.runners.versions.shadow import ShadowResult, check_can_be_shadowed, shadow

pytestmark = pytest.mark.exhaustive

SQL = """
SET 'pipeline.name' = 'counts';
SET 'execution.checkpointing.interval' = '50ms';
CREATE TABLE ids (id BIGINT, ts AS TO_TIMESTAMP_LTZ(id * 10, 3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen',
  'rows-per-second' = '3000', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '100000000');
CREATE TABLE windows (w TIMESTAMP_LTZ(3), k BIGINT, n BIGINT)
  WITH ('connector' = 'filesystem', 'path' = '{folder}/windows', 'format' = 'json');
CREATE TABLE raw (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{folder}/raw', 'format' = 'json');
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows SELECT window_start, id % 2, COUNT(*)
  FROM TABLE(TUMBLE(TABLE ids, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, id % 2;
INSERT INTO raw SELECT id FROM ids;
END;
"""


class Running:
    """A job of which a savepoint was taken amid a window; `written`: the files of its sinks then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old = self.compiled(SQL)
        state = JobStateOptions(str(folder / "state"))
        with start_embedded(self.old.job_graph, state=state) as job:
            while (checkpoints := job.status().checkpoints) is None or checkpoints.completed < 3:
                assert job.wait(10) is None
            self.savepoint = job.take_snapshot(str(folder / "saved")).wait(30_000)
        self.written = self.files()

    def compiled(self, sql: str) -> CompiledPipeline:
        file = self.folder / "counts.sql"
        file.write_text(sql.replace("{folder}", str(self.folder)))
        return compile_pipeline(file)

    def files(self) -> list[Path]:
        return sorted(p for name in ("windows", "raw") for p in (self.folder / name).rglob("*"))

    def shadow(self, sql: str) -> ShadowResult:
        new = self.compiled(sql)
        check_can_be_shadowed(self.old, new)
        found = shadow(self.old, new, self.savepoint, record_ms=300, sample=5, clock=SystemClock())
        assert self.files() == self.written
        assert found.rows["ids"] > 0
        return found


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_what_means_the_same_is_equal_with_the_state_that_there_was(running: Running) -> None:
    found = running.shadow(SQL.replace("id % 2, COUNT(*)", "id % 2, COUNT(*) + 0"))
    assert found.equal
    windows, raw = found.sinks
    assert (windows.name, windows.stream_rows, windows.spark_rows) == ("windows", 2, 2)
    assert raw.stream_rows == found.rows["ids"]


def test_what_differs_is_shown(running: Running) -> None:
    found = running.shadow(SQL.replace("SELECT id FROM ids", "SELECT id FROM ids WHERE id % 3 = 0"))
    windows, raw = found.sinks
    assert (windows.equal, raw.equal, found.equal) == (True, False, False)
    assert (raw.only_spark, raw.only_stream + raw.spark_rows) == (0, raw.stream_rows)
    assert all(is_old and int(str(values[0])) % 3 for is_old, values in raw.sample)


def test_sinks_come_and_go(running: Running) -> None:
    found = running.shadow(
        SQL.replace("CREATE TABLE raw (id BIGINT)", "CREATE TABLE raw (id INT)")
        .replace("INTO raw SELECT id", "INTO raw SELECT CAST(id AS INT)")
        .replace("END;", "INSERT INTO more SELECT id FROM ids;\nEND;")
        .replace("EXECUTE", "CREATE TABLE more (id BIGINT) WITH ('connector' = 'print');\nEXECUTE")
    )
    assert ([s.name for s in found.sinks], found.only_old, set(found.only_new)) == (
        ["windows"],
        ("raw",),
        {"raw", "more"},
    )
    assert not found.equal


def test_a_version_that_fails_says_why(running: Running) -> None:
    with pytest.raises(JobFailedError, match="by zero"):
        running.shadow(SQL.replace("INTO raw SELECT id FROM", "INTO raw SELECT id / (id - id) FROM"))


def test_what_cannot_be_compared_is_said_first(tmp_path: Path) -> None:
    file = tmp_path / "a.sql"

    def compiled(sql: str) -> CompiledPipeline:
        file.write_text(sql)
        return compile_pipeline(file)

    old = compiled(SQL)
    other = compiled(SQL.replace("'rows-per-second' = '3000'", "'rows-per-second' = '9'"))
    with pytest.raises(PipelineError, match="table 'ids': it is not declared alike in both versions"):
        check_can_be_shadowed(old, other)
    changes = compiled(
        f"CREATE TABLE ids (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'debezium-json');\n"
        "CREATE TABLE raw (id BIGINT) WITH ('connector' = 'print');\nINSERT INTO raw SELECT id FROM ids;\n"
    )
    with pytest.raises(PipelineError, match="table 'ids': it gives changes of rows"):
        check_can_be_shadowed(old, changes)
