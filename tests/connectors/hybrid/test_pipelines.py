"""Whole pipelines over hybrid tables of files, as users write them; those with servers are in test_recovery and test_backfill."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.connectors.hybrid.tables import BEGIN_MS, write_rows
from tests.end_to_end.conftest import Command, flowrun
from tests.end_to_end.running import ROOT, SAMPLES, json_rows

__all__ = ["flowrun"]

SCRIPT = """
CREATE TABLE rows_in (id BIGINT, millis BIGINT, ts AS TO_TIMESTAMP_LTZ(millis, 3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'hybrid', 'source-identifiers' = 'history,live', 'switch-time' = '2026-01-01T00:00:50',
  'format.on-error' = 'dead-letter', 'format.dead-letter.path' = 'dead',
  'history.connector' = 'filesystem', 'history.path' = 'old', 'history.format' = 'json',
  'live.connector' = 'filesystem', 'live.path' = 'new', 'live.format' = 'csv');
CREATE TABLE ids (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO ids SELECT id FROM rows_in WHERE id % 2 = 0;
"""


@pytest.mark.parametrize(
    "words", [("-p", "1"), ("-p", "3"), pytest.param(("--mode", "batch"), marks=[pytest.mark.exhaustive])], ids=" ".join
)
def test_event_time_may_be_computed_and_unread_and_records_put_aside(
    flowrun: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    words: tuple[str, ...],
) -> None:
    if "batch" in words:
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = [json.dumps({"id": s, "millis": BEGIN_MS + 1000 * s}) for s in range(60)]
    (tmp_path / "old/1.json").write_text("\n".join([*old, "broken"]))
    (tmp_path / "new/1.csv").write_text("".join(f"{s},{BEGIN_MS + 1000 * s}\n" for s in range(40, 100)) + "broken,x\n")
    (tmp_path / "job.sql").write_text(SCRIPT)
    ran = flowrun("run", "job.sql", *words)
    assert ran.code == 0, ran.err
    assert sorted(int(str(r["id"])) for r in json_rows(tmp_path / "out")) == list(range(0, 100, 2))
    letters = [json.loads(line) for f in (tmp_path / "dead").glob("part-*") for line in f.read_text().splitlines()]
    assert sorted(Path(x["file"]).name for x in letters) == ["1.csv", "1.json"]


def test_a_hybrid_table_is_no_sink(flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "old/1.json", range(3))
    (tmp_path / "job.sql").write_text(SCRIPT.replace("INTO ids SELECT id", "INTO rows_in SELECT id, id"))
    ran = flowrun("validate", "job.sql")
    assert ran.code == 2
    assert "connector 'hybrid' is no sink" in ran.err + ran.out


@pytest.mark.parametrize(
    ("language", "ending"), [("sql", "INSERT INTO gone SELECT order_id FROM orders;"), ("yaml", "")]
)
def test_the_examples_of_the_page_are_accepted(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, ending: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(SAMPLES)
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / "docs/connectors/hybrid.md").read_text(), re.DOTALL)
    assert found is not None
    sink = "sinks: {gone: {from: orders, connector: blackhole}}"
    if language == "sql":
        sink = "CREATE TABLE gone (order_id BIGINT) WITH ('connector' = 'blackhole');\n"
    (tmp_path / f"job.{language}").write_text(found[1] + sink + ending)
    ran = flowrun("validate", f"job.{language}", "--var", "BROKERS=localhost:9092")
    assert ran.code == 0, ran.err + ran.out
