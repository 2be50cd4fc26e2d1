"""The machine's clock is set back while jobs run, and between their lives: processing time goes on, and no row is late."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from flowrun.core.clock import Clock, SystemClock
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, start_embedded

STEP_MS = 5_000
ROWS = 6_000
PIPELINE = """\
name: counted
settings: {parallelism: PARALLELISM, batch_rows: 50}
sources:
  rows: {connector: datagen, number-of-rows: ROWS, schema: {id: BIGINT}, fields: {id: {kind: sequence, start: 0, end: LAST}}}
steps:
  keyed: {from: rows, select: ["id % 3 AS k"]}
  counted: {from: keyed, key_by: [k], window: {type: WINDOW, time: processing}, aggregate: [COUNT(*) AS n]}
sinks:
  out: {from: counted, connector: filesystem, path: out, format: json}
"""


class SetBackClock(SystemClock):
    """The machine's clock, which somebody sets back by five seconds when it has been looked at so many times."""

    def __init__(self, after: int) -> None:
        self._looks = itertools.count()
        self._after = after

    def now_ms(self) -> int:
        return super().now_ms() - (STEP_MS if next(self._looks) >= self._after else 0)


class BehindClock(SystemClock):
    """The clock of a machine that is a minute behind."""

    def now_ms(self) -> int:
        return super().now_ms() - 60_000


def counted(folder: Path) -> int:
    return sum(json.loads(line)["n"] for file in folder.glob("out/*.json") for line in file.read_text().splitlines())


def pipeline(folder: Path, window: str, parallelism: int = 1) -> Path:
    path = folder / "counted.yaml"
    text = PIPELINE.replace("WINDOW", window).replace("PARALLELISM", str(parallelism))
    path.write_text(text.replace("ROWS", str(ROWS)).replace("LAST", str(ROWS - 1)))
    return path


@pytest.mark.parametrize("window", ["tumbling, size: 20ms", "session, gap: 5ms"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_lose_no_row_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, parallelism: int
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = compile_pipeline(pipeline(tmp_path, window, parallelism)).job_graph
    start_embedded(graph, clock=SetBackClock(150)).wait()
    assert counted(tmp_path) == ROWS


def test_windows_lose_no_row_on_a_machine_whose_clock_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = pipeline(tmp_path, "tumbling, size: 20ms")
    path.write_text(path.read_text().replace("number-of-rows:", "rows-per-second: 10000, number-of-rows:"))
    graph = compile_pipeline(path).job_graph
    job = start_embedded(graph, state=JobStateOptions("state"))
    while not any(v.name.startswith("counted") and v.records_out for v in job.status().vertices):
        assert job.wait(5) is None, "a window fires before all rows are read"
    savepoint = job.take_snapshot("savepoints", stop=True).wait()
    job.wait()
    assert savepoint is not None
    job = start_embedded(graph, clock=BehindClock(), state=JobStateOptions("state", restore_from=savepoint))
    job.wait()
    assert counted(tmp_path) == ROWS


def test_a_timer_is_not_late_by_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clock: Clock = SetBackClock(150)
    path = pipeline(tmp_path, "tumbling, size: 20ms")
    path.write_text(path.read_text().replace("number-of-rows:", "rows-per-second: 20000, number-of-rows:"))
    job = start_embedded(compile_pipeline(path).job_graph, clock=clock)
    assert job.wait(4_000) is not None, "a part of a second of rows, and no window waits for five more"
    assert counted(tmp_path) == ROWS
