"""The commands, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flowrun.connectors.registry import connector_names
from tests.end_to_end.conftest import Command
from tests.end_to_end.processes import wait_for
from tests.end_to_end.running import PIPELINES, ROOT, SAMPLES, json_rows, written_files

EXPLAINED = """\
name: explained
settings: {parallelism: 2}
sources:
  a: {connector: datagen, number-of-rows: 10, schema: {id: BIGINT, v: DOUBLE, ts: TIMESTAMP(3)}, watermark: {column: ts, delay: 1s}}
  b:
    connector: datagen
    number-of-rows: 10
    schema: {id: BIGINT, v: DOUBLE, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 1s}
    parallelism: 3
steps:
  both: {union: [a, b]}
  parts: {from: both, split: {high: v > 0.5, low: v <= 0.5}}
  counted: {from: high, key_by: [id], window: {type: tumbling, size: 1m}, aggregate: [COUNT(*) AS n], parallelism: 3}
sinks:
  counts: {from: counted, connector: blackhole}
  rest: {from: low, connector: blackhole}
"""


@pytest.fixture
def explained(tmp_path: Path) -> Path:
    path = tmp_path / "explained.yaml"
    path.write_text(EXPLAINED)
    return path


@pytest.mark.parametrize("stage", ["plan", "transformations", "stream", "job", "execution", "all"])
@pytest.mark.parametrize("form", ["text", "json", "mermaid"])
def test_explain_shows_every_stage_in_every_form_and_the_same_each_time(
    flowrun: Command, explained: Path, stage: str, form: str
) -> None:
    first = flowrun("explain", explained, "--stage", stage, "--format", form)
    assert first.code == 0, first.err
    assert "counted" in first.out
    assert first.out == flowrun("explain", explained, "--stage", stage, "--format", form).out
    if form == "json" and stage != "all":
        assert json.loads(first.out)
    if form == "mermaid" and stage != "all":
        assert first.out.splitlines()[0].startswith(("flowchart", "graph"))


def test_explain_shows_chains_partitioners_side_outputs_and_parallelism(flowrun: Command, explained: Path) -> None:
    job = flowrun("explain", explained, "--stage", "job").out
    for text in ("HASH", "high", "low", "parallelism 3", "parallelism 2", "->"):
        assert text in job, job
    execution = flowrun("explain", explained, "--stage", "execution").out
    assert "1/3" in execution, execution


def test_validate_says_valid_or_lists_problems_as_text_and_json(flowrun: Command, explained: Path) -> None:
    good = flowrun("validate", explained)
    assert (good.code, good.out.splitlines()[0]) == (0, f"{explained}: valid")
    explained.write_text(EXPLAINED.replace("v > 0.5", "w > 0.5").replace("tumbling", "tumblin"))
    bad = flowrun("validate", explained, "--format", "json")
    report = json.loads(bad.out)
    assert bad.code == 2
    assert report["valid"] is False
    assert {(p["line"], p["severity"]) for p in report["problems"]} >= {(13, "error"), (14, "error")}
    assert flowrun("validate", explained).code == 2


def test_what_is_promised_of_each_sink_is_said_before_running(flowrun: Command, explained: Path) -> None:
    none = "at most once — no checkpoints: a job that fails cannot be resumed"
    said = [f"sink 'counts': {none}", f"sink 'rest': {none}"]
    assert flowrun("explain", explained).out.splitlines()[:3] == [*said, ""]
    assert [line.strip() for line in flowrun("validate", explained).out.splitlines()[1:]] == said
    checkpoints = ("--set", "settings.checkpoint.interval=1s")
    some = {"delivery": "at least once", "reasons": ["connector blackhole cannot take back rows"]}
    both = [{"sink": "counts", **some}, {"sink": "rest", **some}]
    assert json.loads(flowrun("explain", explained, "--format", "json", *checkpoints).out)["delivery"] == both
    assert json.loads(flowrun("validate", explained, "--format", "json", *checkpoints).out)["delivery"] == both


@pytest.mark.parametrize(
    "path", sorted(p for p in PIPELINES.rglob("*.yaml") if not p.name.endswith(".test.yaml")), ids=lambda p: p.stem
)
def test_every_example_is_valid(flowrun: Command, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcome = flowrun("validate", path)
    assert outcome.code == 0, outcome.err
    assert not outcome.err


def test_connectors_lists_all_and_shows_the_options_of_each(flowrun: Command) -> None:
    listing = flowrun("connectors").out
    assert all(name in listing for name in connector_names())
    assert len(json.loads(flowrun("connectors", "--format", "json").out)) == len(connector_names())
    for name in connector_names():
        shown = flowrun("connectors", name)
        assert shown.code == 0, shown.err
        assert name in shown.out
        assert json.loads(flowrun("connectors", name, "--format", "json").out)["name"] == name
    assert "rows-per-second" in flowrun("connectors", "datagen").out
    assert "json.ignore-parse-errors" in flowrun("connectors", "filesystem").out
    assert "as a source, with checkpoints: at most once" in flowrun("connectors", "socket").out
    assert "filesystem     exactly once   exactly once   yes     yes" in listing
    unknown = flowrun("connectors", "kafkaa")
    assert unknown.code == 2
    assert "there is no connector 'kafkaa'" in unknown.err


def test_schema_is_a_json_schema(flowrun: Command) -> None:
    schema = json.loads(flowrun("schema").out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"sources", "steps", "sinks", "settings"} <= set(schema["properties"])


def test_init_makes_a_project_that_runs(flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "first"
    assert flowrun("init", project).code == 0
    monkeypatch.chdir(project)
    assert flowrun("validate", "pipeline.yaml").code == 0
    ran = flowrun("run", "pipeline.yaml")
    assert ran.code == 0, ran.err
    rows = json_rows(project / "out")
    assert rows
    assert ran.out.count("+I[") == len(rows)
    again = flowrun("init", project)
    assert again.code == 2
    assert "already exist" in again.err


def test_variables_and_overrides_change_the_pipeline(flowrun: Command, tmp_path: Path) -> None:
    outcome = flowrun(
        "run",
        PIPELINES / "orders_per_minute.yaml",
        "--var",
        f"OUT={tmp_path}",
        "--var",
        f"SAMPLES={SAMPLES}",
        "--set",
        "steps.per_minute.window.size=10m",
        "-p",
        "1",
        "--report",
        tmp_path / "report.json",
    )
    assert outcome.code == 0, outcome.err
    assert {str(r["window_end"])[15:16] for r in json_rows(tmp_path / "orders_per_minute")} == {"0"}
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["state"].lower() == "finished"
    assert all(v["parallelism"] == 1 for v in report["vertices"])


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "x.yaml", "--var", "novalue"], ["rnu"], ["explain", "x", "--stage", "no"]]
)
def test_wrong_arguments_exit_with_2(flowrun: Command, arguments: list[str]) -> None:
    outcome = flowrun(*arguments)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err


def test_quiet_prints_only_what_the_pipeline_prints(flowrun: Command, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "sources: {a: {connector: datagen, number-of-rows: 2, schema: {x: INT}}}\nsinks: {o: {from: a, connector: print}}\n"
    )
    quiet = flowrun("run", path, "-q")
    assert quiet.err == ""
    assert quiet.out.count("+I[") == 2
    assert "2 rows read" in flowrun("run", path).err


ENDLESS = """\
name: endless
sources:
  rows: {connector: datagen, rows-per-second: 5000, schema: {id: BIGINT}, fields: {id: {kind: sequence}}}
sinks:
  out: {from: rows, connector: filesystem, path: OUT, format: json}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_an_endless_pipeline_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "endless.yaml"
    path.write_text(ENDLESS.replace("OUT", str(tmp_path / "out")))
    process = start("run", str(path))
    wait_for(lambda: any((tmp_path / "out").rglob("*inprogress*")) if (tmp_path / "out").exists() else False, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    ids = [int(str(r["id"])) for r in json_rows(tmp_path / "out")]
    assert ids, "what was read was written"
    assert sorted(ids) == list(range(len(ids)))
    assert [f for f in (tmp_path / "out").rglob("*") if f.is_file()] == written_files(tmp_path / "out")


def test_a_second_signal_cancels_what_will_not_stop(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(
        "sources: {a: {connector: datagen, rows-per-second: 1000000000, schema: {x: INT}}}\n"
        "sinks: {o: {from: a, connector: blackhole, rows-per-second: 1, parallelism: 2}}\n"
    )
    process = start("run", str(path), "--report", str(tmp_path / "never.json"))
    wait_for(lambda: handles_sigterm(process.pid) and threads_of(process.pid) > 6, process)
    process.send_signal(signal.SIGINT)
    assert "stopping" in read_until(process, "stopping")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flowrun", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            return seen
    return seen


def handles_sigterm(pid: int) -> bool:
    """Whether flowrun has installed its signal handlers; Python itself installs one for SIGINT only."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def threads_of(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    return 0
